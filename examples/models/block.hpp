#pragma once
// The blocks that a user would checkpoint by hand: a residual block, a transformer layer.
//
//   { const models::CheckpointBlocks by_hand; loss = task.loss(batch); }      // every block is a reprise::checkpoint
//   loss = task.loss(batch);                                                  // every block is just called

#include <utility>

#include <reprise/libtorch/checkpoint.hpp>

namespace models {

/// Until the end of the block, the models of this thread checkpoint their blocks.
class [[nodiscard]] CheckpointBlocks {
 public:
  CheckpointBlocks() : before_(std::exchange(on(), true)) {}
  ~CheckpointBlocks() { on() = before_; }
  CheckpointBlocks(const CheckpointBlocks&) = delete;
  CheckpointBlocks& operator=(const CheckpointBlocks&) = delete;

  static bool& on() {
    thread_local bool active = false;
    return active;
  }

 private:
  bool before_;
};

template <class Block, class... Inputs>
auto run_block(Block& block, Inputs&&... inputs) {
  if (CheckpointBlocks::on()) return reprise::checkpoint(block, std::forward<Inputs>(inputs)...);
  return reprise::fronts::call_function(block, std::forward<Inputs>(inputs)...);
}

}  // namespace models
