// A memory of one's own for a TrainStep's program: docs/policies/step_memory.md shows it.

#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include <torch/torch.h>
#include <reprise/libtorch.hpp>

// Only large blocks are worth an arena that stays: a program whose arena would be smaller runs from
// the allocator.
class LargeArenas {
 public:
  static constexpr bool plans_addresses = true;

  LargeArenas(reprise::Bytes least, std::shared_ptr<int> runs)
      : least_(least), runs_(std::move(runs)) {}

  void start(const reprise::ArenaLayout& layout) {
    in_arena_ = layout.height >= least_;
    if (in_arena_) arena_.start(layout);
    else arena_.settle();
    *runs_ += in_arena_ ? 1 : 0;
  }
  void begin(std::size_t i) {
    if (in_arena_) arena_.begin(i);
  }
  void end() {
    if (in_arena_) arena_.end();
  }
  void hand_over(const std::vector<at::Tensor>& gradients) { arena_.hand_over(gradients); }
  void settle() { arena_.settle(); }
  void release() { arena_.release(); }
  reprise::Bytes capacity() const { return arena_.capacity(); }
  reprise::ArenaUse use() const { return in_arena_ ? arena_.use() : reprise::ArenaUse{}; }

 private:
  reprise::Bytes least_;
  std::shared_ptr<int> runs_;
  bool in_arena_ = false;
  reprise::ArenaMemory arena_;
};
static_assert(reprise::StepMemory<LargeArenas>);

int main() {
  using namespace reprise::literals;
  const auto train = [](reprise::Bytes least) {
    torch::manual_seed(1);
    torch::nn::Sequential model(torch::nn::Linear(64, 256), torch::nn::GELU(),
                                torch::nn::Linear(256, 10));
    const auto loss = [&](torch::Tensor x, torch::Tensor y) {
      return torch::cross_entropy_loss(model->forward(x), y);
    };
    auto runs = std::make_shared<int>(0);
    reprise::TrainStep step{model,
                            loss,
                            {.recheck = false},
                            reprise::DefaultPipeline{}.with(reprise::Rewriter{
                                reprise::LibTorchBackend{LargeArenas(least, runs)}})};
    for (int i = 0; i < 4; ++i) {
      model->zero_grad();
      step(torch::ones({32, 64}), torch::zeros({32}, torch::kLong));
    }
    std::cout << "arenas of " << format_bytes(least) << " and more: " << *runs << " of "
              << step.counters().replays << " steps in one\n";
    return model->parameters().front().grad().clone();
  };
  const torch::Tensor inside = train(1_KiB), outside = train(1_GiB);
  const bool same = torch::equal(inside, outside);
  std::cout << "gradients equal, bit for bit: " << (same ? "yes" : "no") << '\n';
  return same ? 0 : 1;
}
