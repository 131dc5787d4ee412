#pragma once
// ResNet (He et al., 2015) with torchvision's names, layout and initialisation: the stride of a
// bottleneck stands at its 3 x 3 convolution, ReLU and the residual sum work in place.
//
//   ResNet-18    basic block   {2, 2, 2, 2}     11,689,512 parameters
//   ResNet-50    bottleneck    {3, 4, 6, 3}     25,557,032
//   ResNet-152   bottleneck    {3, 8, 36, 3}    60,192,808
//   conv1.weight  bn1.weight  layer1.0.conv1.weight  layer2.0.downsample.0.weight  fc.weight

#include <string>
#include <vector>

#include <torch/torch.h>

#include "block.hpp"

namespace models {

struct ResNetOptions {
  std::vector<std::int64_t> blocks{3, 4, 6, 3};
  bool bottleneck = true;
  std::int64_t width = 64;  ///< channels of the stem and of the first stage's inner convolutions
  std::int64_t classes = 1000;
};

namespace resnet {

inline torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                              std::int64_t stride = 1) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// What brings the input to the block's shape; empty where it has it already.
inline torch::nn::Sequential downsample(std::int64_t in, std::int64_t out, std::int64_t stride) {
  if (in == out && stride == 1) return nullptr;
  return torch::nn::Sequential(conv(in, out, 1, stride), torch::nn::BatchNorm2d(out));
}

struct BasicBlockImpl : torch::nn::Module {
  static constexpr std::int64_t expansion = 1;

  BasicBlockImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1(register_module("conv1", conv(in, width, 3, stride))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(width))),
        conv2(register_module("conv2", conv(width, width, 3))),
        bn2(register_module("bn2", torch::nn::BatchNorm2d(width))),
        shortcut(downsample(in, width, stride)) {
    if (shortcut) register_module("downsample", shortcut);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto out = bn1(conv1(x)).relu_();
    out = bn2(conv2(out));
    out += shortcut ? shortcut->forward(x) : x;
    return out.relu_();
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
  torch::nn::Sequential shortcut;
};
TORCH_MODULE(BasicBlock);

struct BottleneckImpl : torch::nn::Module {
  static constexpr std::int64_t expansion = 4;

  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1(register_module("conv1", conv(in, width, 1))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(width))),
        conv2(register_module("conv2", conv(width, width, 3, stride))),
        bn2(register_module("bn2", torch::nn::BatchNorm2d(width))),
        conv3(register_module("conv3", conv(width, width * expansion, 1))),
        bn3(register_module("bn3", torch::nn::BatchNorm2d(width * expansion))),
        shortcut(downsample(in, width * expansion, stride)) {
    if (shortcut) register_module("downsample", shortcut);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto out = bn1(conv1(x)).relu_();
    out = bn2(conv2(out)).relu_();
    out = bn3(conv3(out));
    out += shortcut ? shortcut->forward(x) : x;
    return out.relu_();
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
  torch::nn::Conv2d conv3;
  torch::nn::BatchNorm2d bn3;
  torch::nn::Sequential shortcut;
};
TORCH_MODULE(Bottleneck);

}  // namespace resnet

struct ResNetImpl : torch::nn::Module {
  explicit ResNetImpl(const ResNetOptions& options = {})
      : conv1(register_module("conv1", resnet::conv(3, options.width, 7, 2))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(options.width))) {
    channels = options.width;
    for (std::size_t i = 0; i < options.blocks.size(); ++i) {
      const std::int64_t width = options.width << i;
      const std::int64_t stride = i == 0 ? 1 : 2;
      stages.push_back(options.bottleneck
                           ? stage<resnet::Bottleneck>(options.blocks[i], width, stride)
                           : stage<resnet::BasicBlock>(options.blocks[i], width, stride));
      register_module("layer" + std::to_string(i + 1), stages.back());
    }
    fc = register_module("fc", torch::nn::Linear(channels, options.classes));
    initialise();
  }

  torch::Tensor forward(const torch::Tensor& images) {
    auto x = bn1(conv1(images)).relu_();
    x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (auto& layer : stages)
      for (auto& block : *layer) x = run_block(block, x);
    return fc(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  std::vector<torch::nn::Sequential> stages;
  torch::nn::Linear fc = nullptr;

 private:
  template <class Block>
  torch::nn::Sequential stage(std::int64_t blocks, std::int64_t width, std::int64_t stride) {
    torch::nn::Sequential layer;
    for (std::int64_t i = 0; i < blocks; ++i) {
      layer->push_back(Block(channels, width, i == 0 ? stride : 1));
      channels = width * Block::ContainedType::expansion;
    }
    return layer;
  }

  void initialise() {
    for (const auto& module : modules(/*include_self=*/false))
      if (auto* layer = module->as<torch::nn::Conv2d>())
        torch::nn::init::kaiming_normal_(layer->weight, 0.0, torch::kFanOut, torch::kReLU);
  }

  std::int64_t channels = 0;
};
TORCH_MODULE(ResNet);

}  // namespace models
