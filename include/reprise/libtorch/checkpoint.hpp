#pragma once
// checkpoint() runs a module or function without keeping its activations: it keeps the arguments,
// and backward recomputes the activations from them.
//
// ```cpp
// auto y = reprise::checkpoint(block, x);      // a module, its holder, or any function
// auto [a, b] = reprise::checkpoint(
//     [&](auto x, auto mask) { return std::tuple{f(x, mask), g(x)}; }, x, mask);
// // recomputes everything except the results of matmuls
// auto z = reprise::checkpoint({.keep = reprise::keep_matmuls}, block, x);
// auto out = reprise::checkpoint_sequential(layers, 4, x);  // torch::nn::Sequential, four segments
// ```
//
// Results and gradients are the same, to the last bit: a recomputation uses the random numbers,
// autocast mode and grad mode of the forward. Writes of the function outside of itself (batch-norm
// statistics, counters) happen once. Calls may be nested. Backward may run several times
// (retain_graph), be differentiated (create_graph), and run on another thread.
//
// Until backward, checkpoint() keeps the function, which backward calls: objects that the function
// captures by reference must outlive backward. In a TrainStep or in a MemoryBudget's step,
// checkpoint() only calls the function: the plan decides what to recompute.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <reprise/libtorch/checkpoint/checkpoint_region.hpp>

namespace reprise::fronts {

/// For CheckpointOptions::keep: ops that are expensive for each byte of their results.
[[nodiscard]] inline bool keep_matmuls(std::string_view op) {
  constexpr std::string_view ops[] = {"aten::mm",
                                      "aten::addmm",
                                      "aten::bmm",
                                      "aten::baddbmm",
                                      "aten::convolution",
                                      "aten::mkldnn_rnn_layer",
                                      "aten::_scaled_dot_product_flash_attention_for_cpu",
                                      "aten::_scaled_dot_product_flash_attention",
                                      "aten::_scaled_dot_product_efficient_attention"};
  return std::ranges::find(ops, op) != std::end(ops);
}

/// Points to an object of another owner, which may have died before backward.
template <class T>
inline constexpr bool is_borrowed = false;
template <class T>
inline constexpr bool is_borrowed<c10::ArrayRef<T>> = true;
template <>
inline constexpr bool is_borrowed<std::string_view> = true;

template <class Function, class... Arguments>
decltype(auto) call_function(Function& f, Arguments&&... arguments) {
  if constexpr (requires { f->forward(std::forward<Arguments>(arguments)...); })
    return f->forward(std::forward<Arguments>(arguments)...);
  else if constexpr (requires { f.forward(std::forward<Arguments>(arguments)...); })
    return f.forward(std::forward<Arguments>(arguments)...);
  else return std::invoke(f, std::forward<Arguments>(arguments)...);
}

/// A module that is passed as itself, and not as a function that can be copied.
template <class Function>
concept ModuleItself = requires(std::remove_reference_t<Function>& f) {
  f.named_parameters();
  f.shared_from_this();
};

/// Keeps the function, or the module that owns it, until backward.
template <class Function>
auto hold_function(Function&& f) {
  using Plain = std::remove_reference_t<Function>;
  if constexpr (ModuleItself<Function> && std::is_lvalue_reference_v<Function>) {
    const auto owner = f.weak_from_this().lock();
    return owner ? std::shared_ptr<Plain>(owner, &f)
                 : std::shared_ptr<Plain>(std::shared_ptr<void>(), &f);
  } else {
    return std::make_shared<std::decay_t<Function>>(std::forward<Function>(f));
  }
}

/// The stored copy of an argument, with the value category that the function was given.
template <class Given, class Stored>
decltype(auto) as_given(Stored& stored) {
  if constexpr (std::is_same_v<std::remove_cvref_t<Given>, Stored>)
    return static_cast<Given&&>(stored);
  else return static_cast<Stored&>(stored);
}

template <class Function, class... Arguments>
std::function<void(std::vector<at::Tensor>&&)> run_again(
    std::shared_ptr<Function> f, std::tuple<std::decay_t<Arguments>...> arguments) {
  return [f = std::move(f), arguments = std::move(arguments)](std::vector<at::Tensor>&& tensors) {
    auto now = arguments;
    std::size_t next = 0;
    for_each_tensor(now, [&](at::Tensor& t) { t = std::move(tensors[next++]); });
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      static_cast<void>(call_function(*f, as_given<Arguments>(std::get<I>(now))...));
    }
    (std::index_sequence_for<Arguments...>{});
  };
}

/// A tensor without memory.
[[nodiscard]] inline at::Tensor placeholder() {
  const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
  static auto& empty = *new at::Tensor(at::empty({0}));
  return empty;
}

/// `f(arguments...)`, or `f->forward(arguments...)` of a module. Backward recomputes its
/// activations.
template <class Function, class... Arguments>
auto checkpoint(const CheckpointOptions& options, Function&& f, Arguments&&... arguments) {
  static_assert(!(is_borrowed<std::remove_cvref_t<Arguments>> || ...),
                "checkpoint keeps its arguments until backward: pass a std::vector or std::string, "
                "not a view of one");
  static_assert((std::is_copy_constructible_v<std::decay_t<Arguments>> && ...),
                "checkpoint keeps a copy of each argument until backward");
  const bool recorded =
      DispatchHook::current() != nullptr && CheckpointRegion::innermost() == nullptr;
  if (!at::GradMode::is_enabled() || recorded)
    return call_function(f, std::forward<Arguments>(arguments)...);

  const auto frame = std::make_shared<CheckpointFrame>(options);
  const auto held = hold_function(std::forward<Function>(f));
  std::tuple<std::decay_t<Arguments>...> copies(arguments...);
  std::vector<at::Tensor> tensors;
  for_each_tensor(copies, [&](at::Tensor& t) {
    tensors.push_back(t);
    t = placeholder();
  });
  frame->run =
      run_again<std::remove_reference_t<decltype(*held)>, Arguments...>(held, std::move(copies));
  ForwardRegion region(frame, std::exchange(tensors, {}));
  struct Complete {
    CheckpointFrame& frame;
    int exceptions = std::uncaught_exceptions();
    ~Complete() { frame.complete = std::uncaught_exceptions() == exceptions; }
  } const complete{*frame};
  return call_function(*held, std::forward<Arguments>(arguments)...);
}

template <class Function, class... Arguments>
requires(!std::is_convertible_v<Function, const CheckpointOptions&>) auto checkpoint(
    Function&& f, Arguments&&... arguments) {
  return checkpoint(CheckpointOptions{}, std::forward<Function>(f),
                    std::forward<Arguments>(arguments)...);
}

template <class Modules>
auto& range_of(Modules& modules) {
  if constexpr (requires { modules->begin(); }) return *modules;
  else return modules;
}

/// Runs a chain of modules or functions (a torch::nn::Sequential, a vector) in `segments` segments
/// of nearly equal length. All segments except the last are checkpointed. Backward begins with the
/// last one, so recomputing it would save nothing.
template <class Modules, class Input>
auto checkpoint_sequential(const CheckpointOptions& options, Modules&& modules,
                           std::size_t segments, Input input) {
  auto& range = range_of(modules);
  using Module = std::remove_cvref_t<decltype(*range.begin())>;
  const auto count = static_cast<std::size_t>(std::distance(range.begin(), range.end()));
  if (segments < 1 || segments > count)
    throw Error(Errc::bad_argument,
                "checkpoint_sequential: " + std::to_string(segments) + " segments of " +
                    std::to_string(count) +
                    " modules; name at least one, and no more than there are modules");
  const auto run = [](std::vector<Module>& part, Input x) {
    for (Module& module : part) x = call_function(module, std::move(x));
    return x;
  };
  auto next = range.begin();
  for (std::size_t s = 0; s < segments; ++s) {
    const auto length =
        static_cast<std::ptrdiff_t>(count * (s + 1) / segments - count * s / segments);
    std::vector<Module> part(next, next + length);
    next += length;
    if (s + 1 == segments) return run(part, std::move(input));
    input = checkpoint(
        options, [part = std::move(part), run](const Input& x) mutable { return run(part, x); },
        std::move(input));
  }
  return input;
}

template <class Modules, class Input>
auto checkpoint_sequential(Modules&& modules, std::size_t segments, Input input) {
  return checkpoint_sequential(CheckpointOptions{}, std::forward<Modules>(modules), segments,
                               std::move(input));
}

}  // namespace reprise::fronts

namespace reprise {
using fronts::checkpoint;
using fronts::checkpoint_sequential;
using fronts::keep_matmuls;
}  // namespace reprise
