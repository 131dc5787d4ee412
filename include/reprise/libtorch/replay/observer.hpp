#pragma once
// An Observer is called before and after each occurrence of a node while a program runs.
//
//   struct Count {
//     std::size_t ops = 0;
//     void before(std::size_t, NodeId, const auto&) {}
//     void after(std::size_t, NodeId, const auto&) { ++ops; }
//   };
//   Count count;
//   program.run(bindings, count);
//
// `tensors()` returns the op's operands (before) or results (after). The call takes time, so an
// observer calls it only if it needs the tensors.

#include <cstddef>
#include <vector>

#include <reprise/base/ids.hpp>

namespace at {
class Tensor;
}

namespace reprise::replaying {

/// The argument that a program passes to an observer, for the concept only.
using ObservedTensors = const std::vector<at::Tensor>& (*)();

namespace observer_requirement {
template <class O>
concept before = requires(O& observer, const ObservedTensors& tensors) {
  observer.before(std::size_t{}, NodeId{}, tensors);
};
template <class O>
concept after = requires(O& observer, const ObservedTensors& tensors) {
  observer.after(std::size_t{}, NodeId{}, tensors);
};
}  // namespace observer_requirement

/// Observer requires: (1) before(occurrence, node, tensors), right before an op; (2)
/// after(occurrence, node, tensors), right after it, before anything is freed. `tensors` can be
/// called, and gives the tensors.
template <class O>
concept Observer = observer_requirement::before<O> && observer_requirement::after<O>;

/// True. If O is no Observer, one line of the compiler's output says what it lacks.
template <class O>
[[nodiscard]] consteval bool is_observer() {
  static_assert(observer_requirement::before<O>,
                "O is no Observer: it needs (1) void before(std::size_t i, NodeId, const auto& "
                "tensors); see docs/policies/observer.md");
  static_assert(observer_requirement::after<O>,
                "O is no Observer: it needs (2) void after(std::size_t i, NodeId, const auto& "
                "tensors); see docs/policies/observer.md");
  return Observer<O>;
}

/// The null model: does nothing.
struct NullObserver {
  template <class Tensors>
  void before(std::size_t /*occurrence*/, NodeId /*node*/, const Tensors& /*tensors*/) {}
  template <class Tensors>
  void after(std::size_t /*occurrence*/, NodeId /*node*/, const Tensors& /*tensors*/) {}
};
static_assert(Observer<NullObserver>);

}  // namespace reprise::replaying

namespace reprise {
using replaying::is_observer;
using replaying::NullObserver;
using replaying::Observer;
}  // namespace reprise
