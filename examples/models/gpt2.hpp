#pragma once
// GPT-2 (Radford et al., 2019), named as Hugging Face's GPT2LMHeadModel: pre-norm, tanh GELU,
// Conv1D layers (a linear layer whose weight is stored [in, out]), causal attention, dropout in
// three places, and a head whose weight is the token embedding itself.
//
//   small: 12 layers of 768, 12 heads, vocabulary 50,257, context 1,024: 124,439,808 parameters
//   transformer.wte.weight  transformer.h.0.attn.c_attn.weight  transformer.h.11.mlp.c_proj.bias  transformer.ln_f.weight

#include <cmath>
#include <string>

#include <torch/torch.h>

#include "block.hpp"

namespace models {

struct GPT2Options {
  std::int64_t vocabulary = 50'257;
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t positions = 1024;
  double dropout = 0.1;
};

namespace gpt2 {

struct Conv1DImpl : torch::nn::Module {
  Conv1DImpl(std::int64_t in, std::int64_t out)
      : weight(register_parameter("weight", torch::empty({in, out}))),
        bias(register_parameter("bias", torch::zeros({out}))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    auto sizes = x.sizes().vec();
    sizes.back() = weight.size(1);
    return torch::addmm(bias, x.view({-1, x.size(-1)}), weight).view(sizes);
  }

  torch::Tensor weight, bias;
};
TORCH_MODULE(Conv1D);

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const GPT2Options& o)
      : c_attn(register_module("c_attn", Conv1D(o.width, 3 * o.width))),
        c_proj(register_module("c_proj", Conv1D(o.width, o.width))),
        resid_dropout(register_module("resid_dropout", torch::nn::Dropout(o.dropout))),
        heads(o.heads),
        dropout(o.dropout) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto parts = c_attn(x).split(x.size(2), 2);
    const auto context = torch::scaled_dot_product_attention(
        split_heads(parts[0]), split_heads(parts[1]), split_heads(parts[2]), {},
        is_training() ? dropout : 0.0, /*is_causal=*/true);
    return resid_dropout(c_proj(context.transpose(1, 2).reshape(x.sizes())));
  }

  Conv1D c_attn, c_proj;
  torch::nn::Dropout resid_dropout;
  std::int64_t heads;
  double dropout;

 private:
  /// [batch, time, width] to [batch, heads, time, width / heads]
  [[nodiscard]] torch::Tensor split_heads(const torch::Tensor& x) const {
    return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
  }
};
TORCH_MODULE(Attention);

struct MLPImpl : torch::nn::Module {
  explicit MLPImpl(const GPT2Options& o)
      : c_fc(register_module("c_fc", Conv1D(o.width, 4 * o.width))),
        c_proj(register_module("c_proj", Conv1D(4 * o.width, o.width))),
        dropout(register_module("dropout", torch::nn::Dropout(o.dropout))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return dropout(c_proj(torch::gelu(c_fc(x), "tanh")));
  }

  Conv1D c_fc, c_proj;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(MLP);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GPT2Options& o)
      : ln_1(register_module("ln_1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        attn(register_module("attn", Attention(o))),
        ln_2(register_module("ln_2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        mlp(register_module("mlp", MLP(o))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto attended = x + attn(ln_1(x));
    return attended + mlp(ln_2(attended));
  }

  torch::nn::LayerNorm ln_1;
  Attention attn;
  torch::nn::LayerNorm ln_2;
  MLP mlp;
};
TORCH_MODULE(Block);

struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(const GPT2Options& o)
      : wte(register_module("wte", torch::nn::Embedding(o.vocabulary, o.width))),
        wpe(register_module("wpe", torch::nn::Embedding(o.positions, o.width))),
        drop(register_module("drop", torch::nn::Dropout(o.dropout))) {
    for (std::int64_t i = 0; i < o.layers; ++i) h->push_back(Block(o));
    register_module("h", h);
    ln_f = register_module("ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})));
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    const auto positions = torch::arange(tokens.size(1), tokens.options()).unsqueeze(0);
    auto x = drop(wte(tokens) + wpe(positions));
    for (const auto& block : *h) x = run_block(*block->as<Block>(), x);
    return ln_f(x);
  }

  torch::nn::Embedding wte, wpe;
  torch::nn::Dropout drop;
  torch::nn::ModuleList h;
  torch::nn::LayerNorm ln_f = nullptr;
};
TORCH_MODULE(Transformer);

}  // namespace gpt2

struct GPT2Impl : torch::nn::Module {
  explicit GPT2Impl(const GPT2Options& o = {})
      : transformer(register_module("transformer", gpt2::Transformer(o))) {
    initialise(o);
  }

  /// Logits [batch, time, vocabulary].
  torch::Tensor forward(const torch::Tensor& tokens) {
    return torch::linear(transformer(tokens), transformer->wte->weight);
  }

  gpt2::Transformer transformer;

 private:
  // Matrices are normal with 0.02; those that feed a residual sum are narrower the more of them
  // there are. Vectors keep their ones and zeros.
  void initialise(const GPT2Options& o) {
    torch::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      if (parameter.value().dim() < 2) continue;
      const bool feeds_residual = parameter.key().find("c_proj") != std::string::npos;
      parameter.value().normal_(
          0.0, feeds_residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(o.layers)) : 0.02);
    }
  }
};
TORCH_MODULE(GPT2);

/// Cross entropy of each token given those before it.
inline torch::Tensor next_token_loss(const torch::Tensor& logits, const torch::Tensor& tokens) {
  const auto predicted = logits.narrow(1, 0, logits.size(1) - 1);
  const auto target = tokens.narrow(1, 1, tokens.size(1) - 1);
  return torch::cross_entropy_loss(predicted.reshape({-1, predicted.size(-1)}), target.reshape(-1));
}

}  // namespace models
