#pragma once
// A StepSnapshot copies what a step changes in place (buffers, existing gradients, the generator)
// and can restore it. It serves a replay whose guard fails halfway, and a comparison that runs one
// step twice.
//
//   const StepSnapshot before(written);
//   program.run(…);                        changes batch norm's statistics
//   before.restore();                      as if the program had not run

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <reprise/libtorch/torch/generator_state.hpp>

namespace reprise::replaying {

/// The copies are outside of LibTorch's allocator.
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
  /// Whether everything is now as in the snapshot.
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
