#pragma once
// Switches are LibTorch's settings that decide which kernel an op runs and with which bits. A
// recorded call keeps the switches of its first run. Its recomputation runs under them, whatever
// the user has set since.
//
// ```cpp
// const Switches* then = Switches::interned(Switches::now());
// at::set_num_threads(1);
// {
//   const SwitchScope as_then(*then);   // as many threads as before
// }                                     // 1 again
// ```

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <type_traits>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>

#if defined(__SSE__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

#include <reprise/base/one_per_process.hpp>

namespace reprise::tensors {

/// This thread's flags that turn denormal numbers into zeros.
[[nodiscard]] inline std::uint32_t denormal_flags() {
#if defined(__SSE__) || defined(_M_X64)
  return _mm_getcsr() & 0x8040u;  // flush to zero, denormals are zero
#else
  return 0;
#endif
}
inline void set_denormal_flags([[maybe_unused]] std::uint32_t flags) {
#if defined(__SSE__) || defined(_M_X64)
  _mm_setcsr((_mm_getcsr() & ~0x8040u) | flags);
#endif
}

// How exactly oneDNN multiplies float32: by op if LibTorch has such a function, else for all ops.
// Templates, because an older LibTorch lacks the names.
using Precisions = std::array<std::int8_t, 3>;

template <class Result, class Context, class Backend, class Op>
struct PrecisionByOp {
  explicit PrecisionByOp(Result (Context::*)(Backend, Op) const) {}
  static constexpr bool exists = std::is_enum_v<Backend>;
  static constexpr auto onednn = static_cast<Backend>(2);
  static constexpr std::array ops{static_cast<Op>(1), static_cast<Op>(2), static_cast<Op>(3)};
  static constexpr auto inherited = static_cast<Result>(0);
};

template <class Context>
[[nodiscard]] Precisions precisions_of(const Context& context) {
  if constexpr (requires { decltype(PrecisionByOp(&Context::float32Precision))::ops; }) {
    using ByOp = decltype(PrecisionByOp(&Context::float32Precision));
    if constexpr (ByOp::exists) {
      Precisions all{};
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<std::int8_t>(context.float32Precision(ByOp::onednn, ByOp::ops[i]));
      return all;
    }
  }
  return {static_cast<std::int8_t>(context.float32MatmulPrecision()), 0, 0};
}

// An op's own precision is not set if it equals its parent's, because the parent's may change
// later.
template <class Context>
void set_precisions(Context& context, const Precisions& all) {
  if constexpr (requires { decltype(PrecisionByOp(&Context::float32Precision))::ops; }) {
    using ByOp = decltype(PrecisionByOp(&Context::float32Precision));
    if constexpr (ByOp::exists) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto wanted = static_cast<decltype(ByOp::inherited)>(all[i]);
        if (context.float32Precision(ByOp::onednn, ByOp::ops[i]) == wanted) continue;
        context.setFloat32Precision(ByOp::onednn, ByOp::ops[i], ByOp::inherited);
        if (context.float32Precision(ByOp::onednn, ByOp::ops[i]) != wanted)
          context.setFloat32Precision(ByOp::onednn, ByOp::ops[i], wanted);
      }
      return;
    }
  }
  constexpr std::array names{"highest", "high", "medium"};
  context.setFloat32MatmulPrecision(names[static_cast<std::size_t>(all[0])]);
}

struct Switches {
  std::int32_t threads = 0;
  std::uint32_t denormals = 0;
  at::ScalarType default_dtype = at::kFloat;
  bool deterministic = false, warn_only = false, mkldnn = true, flash = true, efficient = true;
  bool math = true;
  Precisions precisions{};

  bool operator==(const Switches&) const = default;

  [[nodiscard]] static Switches now() {
    const at::Context& context = at::globalContext();
    return {.threads = at::get_num_threads(),
            .denormals = denormal_flags(),
            .default_dtype = c10::typeMetaToScalarType(c10::get_default_dtype()),
            .deterministic = context.deterministicAlgorithms(),
            .warn_only = context.deterministicAlgorithmsWarnOnly(),
            .mkldnn = context.userEnabledMkldnn(),
            .flash = context.userEnabledFlashSDP(),
            .efficient = context.userEnabledMemEfficientSDP(),
            .math = context.userEnabledMathSDP(),
            .precisions = precisions_of(context)};
  }

  /// Sets LibTorch's switches to these, if they differ from `from`.
  void set(const Switches& from) const {
    at::Context& context = at::globalContext();
    if (threads != from.threads) at::set_num_threads(threads);
    if (denormals != from.denormals) set_denormal_flags(denormals);
    if (default_dtype != from.default_dtype)
      c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype));
    if (deterministic != from.deterministic || warn_only != from.warn_only)
      context.setDeterministicAlgorithms(deterministic, warn_only);
    if (mkldnn != from.mkldnn) context.setUserEnabledMkldnn(mkldnn);
    if (flash != from.flash) context.setSDPUseFlash(flash);
    if (efficient != from.efficient) context.setSDPUseMemEfficient(efficient);
    if (math != from.math) context.setSDPUseMath(math);
    if (precisions != from.precisions) set_precisions(context, precisions);
  }

  /// The same, at a permanent address, because recordings point to it. A process has a handful of
  /// them.
  [[nodiscard]] static const Switches* interned(const Switches& switches) {
    const std::lock_guard lock(known().guard);
    for (const Switches& one : known().all)
      if (one == switches) return &one;
    known().all.push_back(switches);
    return &known().all.back();
  }

 private:
  struct Known {
    std::mutex guard{};
    std::deque<Switches> all{};
  };
  REPRISE_ONE_PER_PROCESS static Known& known() {
    static auto& all = *new Known;
    return all;
  }
};

/// Until the end of its scope, LibTorch's switches are `then`.
class [[nodiscard]] SwitchScope {
 public:
  explicit SwitchScope(const Switches& then) : then_(then), before_(Switches::now()) {
    then_.set(before_);
  }
  ~SwitchScope() { before_.set(then_); }
  SwitchScope(const SwitchScope&) = delete;
  SwitchScope& operator=(const SwitchScope&) = delete;

 private:
  const Switches then_, before_;
};

}  // namespace reprise::tensors
