"""Tiny models of transformers and diffusers as programs: checked with gradient, and run on four ranks of this process.

    pip install transformers==5.24.0 diffusers==0.42.1
    python real_models.py [NAME ..]

Each model has two layers of width 64 and random weights, and its forward returns the loss. The batch is sharded over
dp, and dim 0 of each weight over tp. Prints a table: statements, constants, the seconds of `check` and of the ranks, and
the largest error of a gradient, relative to the largest element of PyTorch's. An element below 1e-6 of the largest of
all gradients is rounding, and its error is relative to that. With RESHARD_WRITE=1 it writes
benches/results/real_models.jsonl.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import diffusers
import numpy as np
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from results import header, write

from reshard import ReshardError
from reshard.torch import check

BATCH, TOKENS, WORDS = 4, 16, 96
TEXT: dict[str, Any] = dict(
    vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=64, pad_token_id=0
)
GROUPED = {**TEXT, "num_key_value_heads": 2}
WIDE = {**GROUPED, "head_dim": 16}
EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}
IMAGE: dict[str, Any] = dict(image_size=32, patch_size=8, num_channels=3, num_labels=10)
LAYERS: dict[str, Any] = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
LATENT = dict(
    hidden_size=64, intermediate_size=128, moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1,
    q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, n_shared_experts=1,
)  # fmt: skip
STATES: dict[str, Any] = dict(vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, state_size=8, pad_token_id=0)
SPEECH = dict(
    vocab_size=WORDS, num_mel_bins=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, d_model=64, encoder_ffn_dim=128,
    decoder_ffn_dim=128, max_source_positions=16, max_target_positions=32, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
FLUX: dict[str, Any] = dict(
    patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=4, joint_attention_dim=32,
    pooled_projection_dim=32, axes_dims_rope=(4, 4, 8), guidance_embeds=False,
)  # fmt: skip
UNET: dict[str, Any] = dict(
    sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=32, attention_head_dim=8, norm_num_groups=4,
)  # fmt: skip
VAE: dict[str, Any] = dict(
    in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(16, 32),
    layers_per_block=1, latent_channels=4, norm_num_groups=4, sample_size=16,
)  # fmt: skip

Made = tuple[torch.nn.Module, Callable[..., torch.Tensor], list[torch.Tensor]]


class Loss(torch.nn.Module):
    """A model whose forward returns the loss."""

    def __init__(self, model: torch.nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *a: torch.Tensor) -> torch.Tensor:
        return self.loss(self.model, *a)


def tokens() -> torch.Tensor:
    return torch.randint(3, WORDS, (BATCH, TOKENS))


def images(size: int = 32, channels: int = 3) -> torch.Tensor:
    return torch.randn(BATCH, channels, size, size)


def text(name: str, config: dict[str, Any], of: str = "ForCausalLM", eager: bool = False) -> Callable[[], Made]:
    def made() -> Made:
        model = getattr(transformers, name + of)(getattr(transformers, f"{name.removesuffix('LMHead')}Config")(**config))
        if eager:
            model.set_attn_implementation("eager")
        options = {} if of == "ForMaskedLM" else {"use_cache": False}
        return model, lambda m, ids: m(input_ids=ids, labels=ids, **options).loss, [tokens()]

    return made


def vision(name: str, **config: Any) -> Callable[[], Made]:
    def made() -> Made:
        model = getattr(transformers, f"{name}ForImageClassification")(getattr(transformers, f"{name}Config")(**config))
        return model, lambda m, x, y: m(pixel_values=x, labels=y).loss, [images(), torch.randint(0, 10, (BATCH,))]

    return made


def dinov2() -> Made:
    model = transformers.Dinov2Model(transformers.Dinov2Config(**LAYERS, mlp_ratio=2, image_size=32, patch_size=8))
    return model, lambda m, x: m(pixel_values=x).last_hidden_state.square().mean(), [images()]


def whisper() -> Made:
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SPEECH))
    return model, lambda m, x, y: m(input_features=x, labels=y, use_cache=False).loss, [torch.randn(BATCH, 16, 32), tokens()]


def flux() -> Made:
    def loss(m: Any, x: Any, text: Any, pooled: Any, step: Any, words: Any, points: Any) -> Any:
        return m(hidden_states=x, encoder_hidden_states=text, pooled_projections=pooled, timestep=step, txt_ids=words, img_ids=points).sample.square().mean()

    points = torch.randint(0, 4, (16, 3)).float()
    given = [torch.randn(BATCH, 16, 16), torch.randn(BATCH, 8, 32), torch.randn(BATCH, 32), torch.rand(BATCH), torch.zeros(8, 3), points]
    return diffusers.FluxTransformer2DModel(**FLUX), loss, given


def unet() -> Made:
    given = [images(8, 4), torch.randint(0, 100, (BATCH,)), torch.randn(BATCH, 8, 32)]
    return diffusers.UNet2DConditionModel(**UNET), lambda m, x, step, words: m(x, step, words).sample.square().mean(), given


def vae() -> Made:
    return diffusers.AutoencoderKL(**VAE), lambda m, x: (m(x, sample_posterior=False).sample - x).square().mean(), [images(16)]


class Words(torch.nn.Module):
    """A layer between an embedding and a head."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.table, self.inner, self.head = torch.nn.Embedding(WORDS, 64), inner, torch.nn.Linear(64, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        made = self.inner(self.table(ids))
        made = made[0] if isinstance(made, tuple) else made
        return torch.nn.functional.cross_entropy(self.head(made).flatten(0, 1), ids.flatten())


def plain(inner: Callable[[], torch.nn.Module]) -> Callable[[], Made]:
    return lambda: (Words(inner()), lambda m, ids: m(ids), [tokens()])


def encoder() -> torch.nn.Module:
    return torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True), 2, enable_nested_tensor=False)


MODELS: dict[str, Callable[[], Made]] = {
    "llama": text("Llama", GROUPED),
    "llama_eager": text("Llama", GROUPED, eager=True),
    "mistral": text("Mistral", {**GROUPED, "sliding_window": 8}),
    "qwen3": text("Qwen3", WIDE),
    "gemma": text("Gemma", WIDE),
    "gemma2": text("Gemma2", {**WIDE, "sliding_window": 8}),
    "phi": text("Phi", GROUPED),
    "gpt_neox": text("GPTNeoX", TEXT),
    "olmo2": text("Olmo2", GROUPED),
    "mixtral": text("Mixtral", {**GROUPED, **EXPERTS}),
    "mixtral_batched": text("Mixtral", {**GROUPED, **EXPERTS, "experts_implementation": "batched_mm"}),
    "deepseek_v3": text("DeepseekV3", {**TEXT, "num_key_value_heads": 4, **LATENT}),
    "gpt_oss": text("GptOss", {**WIDE, **EXPERTS, "sliding_window": 8}),
    "opt": text("OPT", {**{key: value for key, value in TEXT.items() if key != "intermediate_size"}, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    "mamba": text("Mamba", STATES),
    "mamba2": text("Mamba2", {**STATES, "num_heads": 4, "head_dim": 32, "n_groups": 2, "chunk_size": 8}),
    "modernbert": text("ModernBert", {**TEXT, "local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2}, "ForMaskedLM"),
    "vit": vision("ViT", **LAYERS, **IMAGE, intermediate_size=128),
    "dinov2": dinov2,
    "whisper": whisper,
    "convnext": vision("ConvNext", hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, num_labels=10),
    "swin": vision("Swin", image_size=32, patch_size=4, embed_dim=16, depths=[2], num_heads=[2], window_size=4, num_labels=10),
    "flux": flux,
    "unet": unet,
    "vae": vae,
    "torch_transformer": plain(encoder),
    "torch_lstm": plain(lambda: torch.nn.LSTM(64, 64, batch_first=True)),
}


def input_name(of: str) -> str:
    return of.replace(".", "_")


def measured(name: str) -> dict[str, Any]:
    """Checks a model and runs its program on four ranks, next to PyTorch's backward."""
    torch.manual_seed(0)
    model, loss, inputs = MODELS[name]()
    module = Loss(model, loss).eval()
    placements = {key: "I,S(0)" if one.dim() and one.shape[0] % 2 == 0 else "I,I" for key, one in module.named_parameters()}
    batches = {f"a_{n}": "S(0),R" if one.shape[0] == BATCH else "R,R" for n, one in enumerate(inputs)}
    start = time.perf_counter()
    try:
        made = check(module, inputs, "dp=2,tp=2", {**placements, **batches, "*": "I,I"}, gradient=True)
    except ReshardError as error:
        text = str(error).replace(transformers.__path__[0], "transformers").replace(torch.__path__[0], "torch")
        return {"model": name, "rejected": text}
    checked = time.perf_counter()
    known = {input_name(key): one.detach() for key, one in [*module.named_parameters(), *module.named_buffers()]}
    known |= {f"a_{n}": one for n, one in enumerate(inputs)} | dict(made.constants)
    ranks = made.program.on_ranks({key: known[key].numpy() for key in made.program.inputs})
    ran = time.perf_counter()
    value = module(*(one.clone() for one in inputs))
    value.backward()
    wanted = {key: one.grad.double().numpy() for key, one in module.named_parameters() if one.grad is not None}
    least = 1e-6 * max(float(np.abs(one).max()) for one in wanted.values())
    errors = [
        float(np.abs(np.asarray(ranks.whole(f"d{input_name(key)}"), dtype=np.float64) - one).max()) / max(float(np.abs(one).max()), least)
        for key, one in wanted.items()
    ]
    return {
        "model": name, "statements": len(made.program.statements), "constants": len(made.constants), "gradients": len(errors), "check_s": round(checked - start, 1),
        "ranks_s": round(ran - checked, 1), "loss_error": abs(float(ranks.whole(made.results[0])) / value.item() - 1), "worst_gradient_error": max(errors),
        "received_bytes": ranks.received_bytes,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Checks and runs tiny models of transformers and diffusers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to run (default: all)")
    given = parser.parse_args(arguments)
    transformers.logging.set_verbosity_error()
    versions = {"PyTorch": torch.__version__, "transformers": transformers.__version__, "diffusers": diffusers.__version__}
    run = header("real_models", "python/benches/real_models.py", "models.md", **versions)
    lines: list[dict[str, Any]] = []
    print("model statements constants gradients check_s ranks_s worst_gradient_error")
    for name in given.names or MODELS:
        row = measured(name)
        lines.append({"what": f"check of `{name}` with gradient", "ours": row.get("check_s"), "unit": "s", "details": row})
        if "rejected" in row:
            print(f"{name} rejected: {row['rejected']}", flush=True)
        else:
            print(name, *(row[key] for key in ("statements", "constants", "gradients", "check_s", "ranks_s")), f"{row['worst_gradient_error']:.1e}", flush=True)
    write(run, lines)


if __name__ == "__main__":
    main()
