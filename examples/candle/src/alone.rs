//! Candle's own model on one device.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config, HiddenAct, PositionEmbeddingType};

use crate::sentences::{SENTENCES, TOKENS, places};

/// The model and its inputs.
pub struct Alone {
    model: BertModel,
    ids: Tensor,
    types: Tensor,
    mask: Tensor,
}

impl Alone {
    /// The model of a checkpoint.
    pub fn open(path: &Path) -> candle_core::Result<Alone> {
        let read = std::fs::read(path)
            .map_err(|e| candle_core::Error::msg(format!("{} cannot be read: {e}", path.display())))?;
        let weights = VarBuilder::from_buffered_safetensors(read, DType::F32, &Device::Cpu)?;
        let shape = (SENTENCES.len(), TOKENS);
        let ids: Vec<u32> = places().map(Option::unwrap_or_default).collect();
        let mask: Vec<u32> = places().map(|token| u32::from(token.is_some())).collect();
        let ids = Tensor::from_vec(ids, shape, &Device::Cpu)?;
        Ok(Alone {
            model: BertModel::load(weights, &config())?,
            types: ids.zeros_like()?,
            mask: Tensor::from_vec(mask, shape, &Device::Cpu)?,
            ids,
        })
    }

    /// Returns the last hidden state for all inputs.
    pub fn forward(&self) -> candle_core::Result<Vec<f32>> {
        let hidden = self.model.forward(&self.ids, &self.types, Some(&self.mask))?;
        Ok(hidden.flatten_all()?.to_vec1()?)
    }
}

/// `config.json` of all-MiniLM-L6-v2.
fn config() -> Config {
    Config {
        vocab_size: 30522,
        hidden_size: 384,
        num_hidden_layers: 6,
        num_attention_heads: 12,
        intermediate_size: 1536,
        hidden_act: HiddenAct::Gelu,
        hidden_dropout_prob: 0.1,
        max_position_embeddings: 512,
        type_vocab_size: 2,
        initializer_range: 0.02,
        layer_norm_eps: 1e-12,
        pad_token_id: 0,
        position_embedding_type: PositionEmbeddingType::Absolute,
        use_cache: true,
        classifier_dropout: None,
        model_type: Some("bert".to_owned()),
    }
}
