// A network of sixteen blocks, each checkpointed: what the forward holds, and that the gradients
// are the same.

#include <iostream>

#include <torch/torch.h>
#include <reprise/libtorch.hpp>

int main() {
  const auto train = [](bool by_hand, reprise::CheckpointOptions options) {
    torch::manual_seed(1);
    std::vector<torch::nn::Sequential> blocks;
    for (int i = 0; i < 16; ++i)
      blocks.emplace_back(torch::nn::Linear(256, 256), torch::nn::GELU(), torch::nn::Dropout(0.1),
                          torch::nn::Linear(256, 256));
    auto x = torch::randn({128, 256}).requires_grad_();
    const reprise::Bytes before = reprise::device_memory().live();
    auto h = x;
    for (auto& block : blocks)
      h = h + (by_hand ? reprise::checkpoint(options, block, h) : block->forward(h));
    std::cout << "  held for backward: " << format_bytes(reprise::device_memory().live() - before)
              << '\n';
    h.square().mean().backward();
    return x.grad();
  };

  std::cout << "eager\n";
  const auto expected = train(false, {});
  std::cout << "checkpointed\n";
  const auto all_again = train(true, {});
  std::cout << "checkpointed, results of matmuls kept\n";
  const auto some_again = train(true, {.keep = reprise::keep_matmuls});
  const bool same = torch::equal(expected, all_again) && torch::equal(expected, some_again);
  std::cout << "gradients equal, bit for bit: " << (same ? "yes" : "no") << '\n';
  return same ? 0 : 1;
}
