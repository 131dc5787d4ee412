#pragma once
// AmbientState is the state on which a function's results depend in addition to its arguments:
// generators, autocast, grad mode.
//
// ```cpp
// AmbientState then = AmbientState::now();
// auto a = f(x);   // draws random numbers
// {
//   const AmbientScope as_then(then);
//   auto b = f(x);   // b equals a
// }                  // everything is as it was before the block
// ```

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>

#include <reprise/libtorch/torch/dispatch_hook.hpp>
#include <reprise/libtorch/torch/generator_state.hpp>

namespace reprise::tensors {

/// A generator other than the CPU's default generator, with a copy of its state.
struct GeneratorCopy {
  at::Generator generator;
  at::Generator copy;

  explicit GeneratorCopy(at::Generator g) : generator(std::move(g)), copy(generator.clone()) {}
  void restore() {
    // the state is a tensor
    const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
    generator.set_state(copy.get_state());
  }
};

struct AutocastState {
  static constexpr std::array devices{at::kCPU, at::kCUDA};
  std::array<bool, devices.size()> enabled{};
  std::array<at::ScalarType, devices.size()> dtype{};
  bool cache = true;

  [[nodiscard]] static AutocastState now() {
    AutocastState s;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      s.enabled[i] = at::autocast::is_autocast_enabled(devices[i]);
      s.dtype[i] = at::autocast::get_autocast_dtype(devices[i]);
    }
    s.cache = at::autocast::is_autocast_cache_enabled();
    return s;
  }
  void restore() const {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      at::autocast::set_autocast_enabled(devices[i], enabled[i]);
      at::autocast::set_autocast_dtype(devices[i], dtype[i]);
    }
    at::autocast::set_autocast_cache_enabled(cache);
  }
};

struct AmbientState {
  GeneratorState generator{};
  /// other generators, in the state before their first draw
  std::vector<GeneratorCopy> others{};
  AutocastState autocast{};
  bool grad_mode = true;

  [[nodiscard]] static AmbientState now() {
    return {GeneratorState::now(), {}, AutocastState::now(), at::GradMode::is_enabled()};
  }
};

/// Until the end of its scope, the state is the former one.
class [[nodiscard]] AmbientScope {
 public:
  explicit AmbientScope(AmbientState& then) : before_(AmbientState::now()) {
    for (const GeneratorCopy& other : then.others) before_.others.emplace_back(other.generator);
    at::autocast::increment_nesting();
    set(then);
  }
  ~AmbientScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    set(before_);
  }
  AmbientScope(const AmbientScope&) = delete;
  AmbientScope& operator=(const AmbientScope&) = delete;

 private:
  static void set(AmbientState& state) {
    state.generator.restore();
    for (GeneratorCopy& other : state.others) other.restore();
    state.autocast.restore();
    at::GradMode::set_enabled(state.grad_mode);
  }

  AmbientState before_;
};

}  // namespace reprise::tensors
