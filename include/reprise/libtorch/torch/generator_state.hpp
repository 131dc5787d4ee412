#pragma once
// GeneratorState is the state of the default CPU generator. It is kept outside LibTorch's
// allocator, because the tensor of Generator::get_state would count as live bytes.

#include <mutex>
#include <optional>

#include <ATen/CPUGeneratorImpl.h>

#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

struct GeneratorState {
  at::mt19937 engine{};
  std::optional<float> next_float{};
  std::optional<double> next_double{};

  [[nodiscard]] static GeneratorState now() {
    at::CPUGeneratorImpl& g = generator();
    const std::lock_guard lock(g.mutex_);
    return {g.engine(), g.next_float_normal_sample(), g.next_double_normal_sample()};
  }

  bool operator==(const GeneratorState& other) const {
    const at::mt19937_data_pod a = engine.data(), b = other.engine.data();
    return a.seed_ == b.seed_ && a.left_ == b.left_ && a.next_ == b.next_ && a.state_ == b.state_ &&
           next_float == other.next_float && next_double == other.next_double;
  }

  void restore() const {
    at::CPUGeneratorImpl& g = generator();
    const std::lock_guard lock(g.mutex_);
    g.set_engine(engine);
    g.set_next_float_normal_sample(next_float);
    g.set_next_double_normal_sample(next_double);
  }

 private:
  static at::CPUGeneratorImpl& generator() {
    return *at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  }
};

}  // namespace reprise::tensors
