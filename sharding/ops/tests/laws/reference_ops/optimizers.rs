//! Steps of optimizers.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let (real, positive) = (Data::Real, Data::Positive);
    let mut out = Vec::new();
    for (call, state) in [
        ("sgd_momentum(lr=0.25,momentum=0.5)", real),
        ("sgd_momentum(lr=0.25,momentum=0.5,dampening=0.25)", real),
        ("sgd_momentum(lr=0.25,momentum=0.5,nesterov=true)", real),
        ("adagrad(lr=0.5,eps=0.1)", positive),
        ("rmsprop(lr=0.5,alpha=0.9,eps=0.1)", positive),
        ("lion(lr=0.5,beta1=0.75,beta2=0.9)", real),
    ] {
        out.push(example(call, "6,5 6,5 6,5; 3 3 3").data(&[real, real, state]).near().budget(300));
    }
    for (call, states) in [
        ("adam(lr=0.5,eps=0.1)", [real, positive]),
        ("adam(lr=0.5,beta1=0.75,beta2=0.9,eps=0.1,weight_decay=0.25,step=3)", [real, positive]),
        ("adamw(lr=0.5,eps=0.1)", [real, positive]),
        ("adamw(lr=0.5,beta1=0.75,beta2=0.9,eps=0.1,weight_decay=0.25,step=3)", [real, positive]),
        ("adamax(lr=0.5,beta1=0.75,beta2=0.9,eps=0.1)", [real, positive]),
        ("nadam(lr=0.5,beta1=0.75,beta2=0.9,eps=0.1)", [real, positive]),
        ("radam(lr=0.5,beta1=0.75,beta2=0.9,eps=0.1)", [real, positive]),
        ("radam(lr=0.5,beta1=0.75,beta2=0.9,eps=0.1,step=3)", [real, positive]),
        ("adadelta(lr=0.5,rho=0.75,eps=0.1)", [positive, positive]),
        ("rprop", [real, positive]),
        ("rprop(etaminus=0.25,etaplus=2,min_step=0.5,max_step=1.5)", [real, positive]),
    ] {
        let data = [real, real, states[0], states[1]];
        out.push(example(call, "6,5 6,5 6,5 6,5; 3 3 3 3").data(&data).near().budget(200));
    }
    out.push(
        example("adam_amsgrad(lr=0.5,eps=0.1,step=2)", "6,5 6,5 6,5 6,5 6,5; 3 3 3 3 3")
            .data(&[real, real, real, positive, positive])
            .near()
            .budget(200),
    );
    out
}
