#pragma once
// What a step changes in place (buffers, gradients that are there already, the generator), copied
// so that it can be put back: where a replay finds out halfway that it is not the captured step,
// and where one step is run twice to be compared.
//
//   const StepSnapshot before(written);
//   program.run(…);                        moves batch norm's statistics
//   before.restore();                      as if it had not run

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <reprise/libtorch/torch/generator_state.hpp>

namespace reprise::replaying {

/// Copies of what a step changes in place, and the generator: kept outside LibTorch's allocator,
/// put back on demand.
class StepSnapshot {
 public:
  explicit StepSnapshot(std::vector<at::Tensor> tensors)
      : tensors_(std::move(tensors)), generator_(GeneratorState::now()) {
    for (const at::Tensor& t : tensors_) {
      const auto* bytes = static_cast<const std::byte*>(t.storage().data());
      bytes_.emplace_back(bytes, bytes + t.storage().nbytes());
    }
  }
  void restore() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      std::memcpy(tensors_[i].storage().mutable_data(), bytes_[i].data(), bytes_[i].size());
    generator_.restore();
  }
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Whether everything is now as it was then.
  [[nodiscard]] bool holds_now() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (std::memcmp(tensors_[i].storage().data(), bytes_[i].data(), bytes_[i].size()) != 0)
        return false;
    return generator_ == GeneratorState::now();
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
  GeneratorState generator_;
};

}  // namespace reprise::replaying
