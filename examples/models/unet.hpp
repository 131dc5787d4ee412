#pragma once
// U-Net (Ronneberger et al., 2015) in the form that most people train today: padded 3 x 3
// convolutions with batch norm, transposed convolutions on the way up, dropout at the end of the
// contracting path. Names as in milesial/Pytorch-UNet.
//
//   3 channels, 2 classes, 64 channels at the top: 31,037,698 parameters
//   inc.double_conv.0.weight  down1.maxpool_conv.1.double_conv.0.weight  up1.up.weight  up1.conv.double_conv.0.weight  outc.conv.weight

#include <string>
#include <vector>

#include <torch/torch.h>

#include "block.hpp"

namespace models {

struct UNetOptions {
  std::int64_t channels = 3;
  std::int64_t classes = 2;
  std::int64_t width = 64;  ///< channels at the top, doubled at each of the four steps down
  double dropout = 0.5;
};

namespace unet {

inline constexpr std::int64_t depth = 4;

struct DoubleConvImpl : torch::nn::Module {
  DoubleConvImpl(std::int64_t in, std::int64_t out)
      : double_conv(conv(in, out), norm(out), relu(), conv(out, out), norm(out), relu()) {
    register_module("double_conv", double_conv);
  }

  torch::Tensor forward(const torch::Tensor& x) { return double_conv->forward(x); }

  torch::nn::Sequential double_conv;

 private:
  static torch::nn::Conv2d conv(std::int64_t in, std::int64_t out) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
  }
  static torch::nn::BatchNorm2d norm(std::int64_t channels) {
    return torch::nn::BatchNorm2d(channels);
  }
  static torch::nn::ReLU relu() { return torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)); }
};
TORCH_MODULE(DoubleConv);

struct DownImpl : torch::nn::Module {
  DownImpl(std::int64_t in, std::int64_t out)
      : maxpool_conv(torch::nn::MaxPool2d(2), DoubleConv(in, out)) {
    register_module("maxpool_conv", maxpool_conv);
  }

  torch::Tensor forward(const torch::Tensor& x) { return maxpool_conv->forward(x); }

  torch::nn::Sequential maxpool_conv;
};
TORCH_MODULE(Down);

struct UpImpl : torch::nn::Module {
  UpImpl(std::int64_t in, std::int64_t out)
      : up(register_module("up", torch::nn::ConvTranspose2d(
                                     torch::nn::ConvTranspose2dOptions(in, in / 2, 2).stride(2)))),
        conv(register_module("conv", DoubleConv(in, out))) {}

  torch::Tensor forward(const torch::Tensor& below, const torch::Tensor& skip) {
    auto x = up(below);
    const std::int64_t rows = skip.size(2) - x.size(2), columns = skip.size(3) - x.size(3);
    if (rows != 0 || columns != 0)
      x = torch::constant_pad_nd(x,
                                 {columns / 2, columns - columns / 2, rows / 2, rows - rows / 2});
    return conv(torch::cat({skip, x}, 1));
  }

  torch::nn::ConvTranspose2d up;
  DoubleConv conv;
};
TORCH_MODULE(Up);

struct OutConvImpl : torch::nn::Module {
  OutConvImpl(std::int64_t in, std::int64_t out)
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1)))) {}

  torch::Tensor forward(const torch::Tensor& x) { return conv(x); }

  torch::nn::Conv2d conv;
};
TORCH_MODULE(OutConv);

}  // namespace unet

struct UNetImpl : torch::nn::Module {
  explicit UNetImpl(const UNetOptions& options = {})
      : inc(register_module("inc", unet::DoubleConv(options.channels, options.width))),
        dropout(options.dropout) {
    std::int64_t width = options.width;
    for (std::int64_t i = 1; i <= unet::depth; ++i, width *= 2)
      down.push_back(register_module("down" + std::to_string(i), unet::Down(width, width * 2)));
    register_module("dropout", dropout);
    for (std::int64_t i = 1; i <= unet::depth; ++i, width /= 2)
      up.push_back(register_module("up" + std::to_string(i), unet::Up(width, width / 2)));
    outc = register_module("outc", unet::OutConv(width, options.classes));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    std::vector<torch::Tensor> skips{run_block(inc, images)};
    for (auto& layer : down) skips.push_back(run_block(layer, skips.back()));
    auto x = dropout(skips.back());
    skips.pop_back();
    for (auto& layer : up) {
      x = run_block(layer, x, skips.back());
      skips.pop_back();
    }
    return outc(x);
  }

  unet::DoubleConv inc;
  std::vector<unet::Down> down;
  torch::nn::Dropout dropout;
  std::vector<unet::Up> up;
  unet::OutConv outc = nullptr;
};
TORCH_MODULE(UNet);

/// Cross entropy plus one minus the Dice coefficient over all classes, as segmentation is usually
/// trained.
inline torch::Tensor segmentation_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  const auto probability = torch::softmax(logits, 1);
  const auto target =
      torch::one_hot(labels, logits.size(1)).permute({0, 3, 1, 2}).to(logits.dtype());
  const auto overlap = (probability * target).sum();
  const auto dice = (2 * overlap + 1e-6) / (probability.sum() + target.sum() + 1e-6);
  return torch::cross_entropy_loss(logits, labels) + (1 - dice);
}

}  // namespace models
