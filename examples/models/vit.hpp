#pragma once
// Vision Transformer (Dosovitskiy et al., 2020) with torchvision's names. Dropout 0.1, as the paper
// trains it; the head starts from small random weights instead of torchvision's zeros, so that the
// first step already has a gradient everywhere.
//
//   ViT-B/16: 12 layers of 768, 12 heads, 224 x 224 images in patches of 16: 86,567,656 parameters
//   class_token  conv_proj.weight  encoder.pos_embedding  encoder.layers.encoder_layer_0.self_attention.in_proj_weight
//   encoder.layers.encoder_layer_0.mlp.0.weight  encoder.ln.weight  heads.head.weight

#include <string>

#include <torch/torch.h>

#include "block.hpp"

namespace models {

struct ViTOptions {
  std::int64_t image = 224;
  std::int64_t patch = 16;
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t mlp = 3072;
  std::int64_t classes = 1000;
  double dropout = 0.1;
};

namespace vit {

inline torch::nn::LayerNorm layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(1e-6));
}

struct SelfAttentionImpl : torch::nn::Module {
  explicit SelfAttentionImpl(const ViTOptions& o)
      : in_proj_weight(register_parameter("in_proj_weight", torch::empty({3 * o.width, o.width}))),
        in_proj_bias(register_parameter("in_proj_bias", torch::zeros({3 * o.width}))),
        out_proj(register_module("out_proj", torch::nn::Linear(o.width, o.width))),
        heads(o.heads),
        dropout(o.dropout) {
    torch::nn::init::xavier_uniform_(in_proj_weight);
    torch::nn::init::zeros_(out_proj->bias);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto batch = x.size(0), time = x.size(1), width = x.size(2);
    const auto projected =
        torch::linear(x, in_proj_weight, in_proj_bias).view({batch, time, 3, heads, width / heads});
    // query, key, value: [batch, heads, time, width / heads]
    const auto parts = projected.permute({2, 0, 3, 1, 4}).unbind(0);
    const auto context = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {},
                                                             is_training() ? dropout : 0.0);
    return out_proj(context.transpose(1, 2).reshape({batch, time, width}));
  }

  torch::Tensor in_proj_weight, in_proj_bias;
  torch::nn::Linear out_proj;
  std::int64_t heads;
  double dropout;
};
TORCH_MODULE(SelfAttention);

struct EncoderLayerImpl : torch::nn::Module {
  explicit EncoderLayerImpl(const ViTOptions& o)
      : ln_1(register_module("ln_1", layer_norm(o.width))),
        self_attention(register_module("self_attention", SelfAttention(o))),
        dropout(register_module("dropout", torch::nn::Dropout(o.dropout))),
        ln_2(register_module("ln_2", layer_norm(o.width))),
        mlp(torch::nn::Linear(o.width, o.mlp), torch::nn::GELU(), torch::nn::Dropout(o.dropout),  //
            torch::nn::Linear(o.mlp, o.width), torch::nn::Dropout(o.dropout)) {
    register_module("mlp", mlp);
    for (const auto& layer : *mlp)
      if (auto* linear = layer.ptr()->as<torch::nn::Linear>()) {
        torch::nn::init::xavier_uniform_(linear->weight);
        torch::nn::init::normal_(linear->bias, 0.0, 1e-6);
      }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto attended = x + dropout(self_attention(ln_1(x)));
    return attended + mlp->forward(ln_2(attended));
  }

  torch::nn::LayerNorm ln_1;
  SelfAttention self_attention;
  torch::nn::Dropout dropout;
  torch::nn::LayerNorm ln_2;
  torch::nn::Sequential mlp;
};
TORCH_MODULE(EncoderLayer);

struct EncoderImpl : torch::nn::Module {
  EncoderImpl(std::int64_t time, const ViTOptions& o)
      : pos_embedding(register_parameter("pos_embedding", torch::empty({1, time, o.width}))),
        dropout(register_module("dropout", torch::nn::Dropout(o.dropout))) {
    torch::nn::init::normal_(pos_embedding, 0.0, 0.02);
    for (std::int64_t i = 0; i < o.layers; ++i)
      layers->push_back("encoder_layer_" + std::to_string(i), EncoderLayer(o));
    register_module("layers", layers);
    ln = register_module("ln", layer_norm(o.width));
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    auto x = dropout(tokens + pos_embedding);
    for (auto& layer : *layers) x = run_block(layer, x);
    return ln(x);
  }

  torch::Tensor pos_embedding;
  torch::nn::Dropout dropout;
  torch::nn::Sequential layers;
  torch::nn::LayerNorm ln = nullptr;
};
TORCH_MODULE(Encoder);

}  // namespace vit

struct ViTImpl : torch::nn::Module {
  explicit ViTImpl(const ViTOptions& o = {})
      : class_token(register_parameter("class_token", torch::zeros({1, 1, o.width}))),
        conv_proj(register_module(
            "conv_proj",
            torch::nn::Conv2d(torch::nn::Conv2dOptions(3, o.width, o.patch).stride(o.patch)))),
        encoder(register_module("encoder",
                                vit::Encoder((o.image / o.patch) * (o.image / o.patch) + 1, o))) {
    heads->push_back("head", torch::nn::Linear(o.width, o.classes));
    register_module("heads", heads);
    for (auto& parameter : heads->parameters()) torch::nn::init::normal_(parameter, 0.0, 0.02);
  }

  torch::Tensor forward(const torch::Tensor& images) {
    const auto patches = conv_proj(images).flatten(2).transpose(1, 2);  // [batch, patches, width]
    const auto token = class_token.expand({images.size(0), -1, -1});
    return heads->forward(encoder(torch::cat({token, patches}, 1)).select(1, 0));
  }

  torch::Tensor class_token;
  torch::nn::Conv2d conv_proj;
  vit::Encoder encoder;
  torch::nn::Sequential heads;
};
TORCH_MODULE(ViT);

}  // namespace models
