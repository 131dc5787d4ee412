#pragma once
// BERT (Devlin et al., 2018) with the masked-language-model head, named as Hugging Face's
// BertForMaskedLM: post-norm encoder, learned positions, exact GELU, an additive mask over padding,
// and a decoder whose weight is the word embedding itself.
//
//   BERT-base: 12 layers of 768, 12 heads, vocabulary 30,522: 109,514,298 parameters (no pooler)
//   bert.embeddings.word_embeddings.weight  bert.encoder.layer.0.attention.self.query.weight  cls.predictions.transform.dense.weight

#include <limits>

#include <torch/torch.h>

#include "block.hpp"

namespace models {

struct BertOptions {
  std::int64_t vocabulary = 30'522;
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t intermediate = 3072;
  std::int64_t positions = 512;
  std::int64_t token_types = 2;
  double dropout = 0.1;
};

namespace bert {

inline torch::nn::LayerNorm layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(1e-12));
}

struct EmbeddingsImpl : torch::nn::Module {
  explicit EmbeddingsImpl(const BertOptions& o)
      : word_embeddings(register_module(
            "word_embeddings",
            torch::nn::Embedding(
                torch::nn::EmbeddingOptions(o.vocabulary, o.width).padding_idx(0)))),
        position_embeddings(
            register_module("position_embeddings", torch::nn::Embedding(o.positions, o.width))),
        token_type_embeddings(
            register_module("token_type_embeddings", torch::nn::Embedding(o.token_types, o.width))),
        norm(register_module("LayerNorm", layer_norm(o.width))),
        dropout(register_module("dropout", torch::nn::Dropout(o.dropout))) {}

  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& token_types) {
    const auto positions = torch::arange(tokens.size(1), tokens.options()).unsqueeze(0);
    const auto sum = word_embeddings(tokens) + token_type_embeddings(token_types) +
                     position_embeddings(positions);
    return dropout(norm(sum));
  }

  torch::nn::Embedding word_embeddings;
  torch::nn::Embedding position_embeddings;
  torch::nn::Embedding token_type_embeddings;
  torch::nn::LayerNorm norm;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Embeddings);

struct SelfAttentionImpl : torch::nn::Module {
  explicit SelfAttentionImpl(const BertOptions& o)
      : query(register_module("query", torch::nn::Linear(o.width, o.width))),
        key(register_module("key", torch::nn::Linear(o.width, o.width))),
        value(register_module("value", torch::nn::Linear(o.width, o.width))),
        heads(o.heads),
        dropout(o.dropout) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    const auto context = torch::scaled_dot_product_attention(
        split(query(x)), split(key(x)), split(value(x)), mask, is_training() ? dropout : 0.0);
    return context.transpose(1, 2).reshape(x.sizes());
  }

  torch::nn::Linear query, key, value;
  std::int64_t heads;
  double dropout;

 private:
  /// [batch, time, width] to [batch, heads, time, width / heads]
  [[nodiscard]] torch::Tensor split(const torch::Tensor& x) const {
    return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
  }
};
TORCH_MODULE(SelfAttention);

/// The projection, dropout, residual sum and norm that end both halves of a layer.
struct OutputImpl : torch::nn::Module {
  OutputImpl(std::int64_t in, const BertOptions& o)
      : dense(register_module("dense", torch::nn::Linear(in, o.width))),
        norm(register_module("LayerNorm", layer_norm(o.width))),
        dropout(register_module("dropout", torch::nn::Dropout(o.dropout))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& residual) {
    return norm(dropout(dense(x)) + residual);
  }

  torch::nn::Linear dense;
  torch::nn::LayerNorm norm;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Output);

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const BertOptions& o)
      : self(register_module("self", SelfAttention(o))),
        output(register_module("output", Output(o.width, o))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    return output(self(x, mask), x);
  }

  SelfAttention self;
  Output output;
};
TORCH_MODULE(Attention);

struct IntermediateImpl : torch::nn::Module {
  explicit IntermediateImpl(const BertOptions& o)
      : dense(register_module("dense", torch::nn::Linear(o.width, o.intermediate))) {}

  torch::Tensor forward(const torch::Tensor& x) { return torch::gelu(dense(x)); }

  torch::nn::Linear dense;
};
TORCH_MODULE(Intermediate);

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(const BertOptions& o)
      : attention(register_module("attention", Attention(o))),
        intermediate(register_module("intermediate", Intermediate(o))),
        output(register_module("output", Output(o.intermediate, o))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    const auto attended = attention(x, mask);
    return output(intermediate(attended), attended);
  }

  Attention attention;
  Intermediate intermediate;
  Output output;
};
TORCH_MODULE(Layer);

struct EncoderImpl : torch::nn::Module {
  explicit EncoderImpl(const BertOptions& o) {
    for (std::int64_t i = 0; i < o.layers; ++i) layer->push_back(Layer(o));
    register_module("layer", layer);
  }

  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask) {
    for (const auto& block : *layer) x = run_block(*block->as<Layer>(), x, mask);
    return x;
  }

  torch::nn::ModuleList layer;
};
TORCH_MODULE(Encoder);

struct ModelImpl : torch::nn::Module {
  explicit ModelImpl(const BertOptions& o)
      : embeddings(register_module("embeddings", Embeddings(o))),
        encoder(register_module("encoder", Encoder(o))) {}

  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& token_types,
                        const torch::Tensor& attention_mask) {
    const auto x = embeddings(tokens, token_types);
    // [batch, 1, 1, time]
    const auto visible = attention_mask.unsqueeze(1).unsqueeze(2).to(x.dtype());
    return encoder(x, (1 - visible) * static_cast<double>(std::numeric_limits<float>::lowest()));
  }

  Embeddings embeddings;
  Encoder encoder;
};
TORCH_MODULE(Model);

struct TransformImpl : torch::nn::Module {
  explicit TransformImpl(const BertOptions& o)
      : dense(register_module("dense", torch::nn::Linear(o.width, o.width))),
        norm(register_module("LayerNorm", layer_norm(o.width))) {}

  torch::Tensor forward(const torch::Tensor& x) { return norm(torch::gelu(dense(x))); }

  torch::nn::Linear dense;
  torch::nn::LayerNorm norm;
};
TORCH_MODULE(Transform);

struct PredictionsImpl : torch::nn::Module {
  explicit PredictionsImpl(const BertOptions& o)
      : transform(register_module("transform", Transform(o))),
        bias(register_parameter("bias", torch::zeros({o.vocabulary}))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& word_embeddings) {
    return torch::linear(transform(x), word_embeddings, bias);
  }

  Transform transform;
  torch::Tensor bias;
};
TORCH_MODULE(Predictions);

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const BertOptions& o)
      : predictions(register_module("predictions", Predictions(o))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& word_embeddings) {
    return predictions(x, word_embeddings);
  }

  Predictions predictions;
};
TORCH_MODULE(Head);

}  // namespace bert

struct BertForMaskedLMImpl : torch::nn::Module {
  explicit BertForMaskedLMImpl(const BertOptions& o = {})
      : bert(register_module("bert", bert::Model(o))), cls(register_module("cls", bert::Head(o))) {
    initialise();
  }

  /// Logits [batch, time, vocabulary]. `attention_mask` is 1 where there is a token and 0 where
  /// there is padding.
  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& token_types,
                        const torch::Tensor& attention_mask) {
    return cls(bert(tokens, token_types, attention_mask),
               bert->embeddings->word_embeddings->weight);
  }

  bert::Model bert;
  bert::Head cls;

 private:
  void initialise() {
    torch::NoGradGuard no_grad;
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* linear = module->as<torch::nn::Linear>()) {
        linear->weight.normal_(0.0, 0.02);
        linear->bias.zero_();
      } else if (auto* embedding = module->as<torch::nn::Embedding>()) {
        embedding->weight.normal_(0.0, 0.02);
      }
    }
    bert->embeddings->word_embeddings->weight[0].zero_();  // padding
  }
};
TORCH_MODULE(BertForMaskedLM);

/// Cross entropy over the masked positions; every other label is -100.
inline torch::Tensor masked_lm_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  const auto flat = logits.view({-1, logits.size(-1)});
  return torch::cross_entropy_loss(flat, labels.view(-1), /*weight=*/{}, at::Reduction::Mean,
                                   /*ignore_index=*/-100);
}

}  // namespace models
