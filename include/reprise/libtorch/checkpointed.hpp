#pragma once
// Checkpointed<M> is a module M whose forward is checkpointed. It has the same constructor, and the
// same parameters and buffers under the same names.
//
// ```cpp
// reprise::Checkpointed<torch::nn::Linear> fc(64, 10);   // for torch::nn::Linear fc(64, 10)
// register_module("fc", fc);                             // "fc.weight", "fc.bias"
// reprise::Checkpointed<Block> again(module);   // for an existing module: the same parameters
// ```

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <torch/nn/pimpl.h>

#include <reprise/libtorch/checkpoint.hpp>

namespace reprise::fronts {

/// The module type behind a holder, or the type itself.
template <class Module>
struct ModuleTypeOf {
  using type = Module;
};
template <class Holder>
requires requires { typename Holder::ContainedType; }
struct ModuleTypeOf<Holder> {
  using type = typename Holder::ContainedType;
};

/// The type of Module::forward if it is one function; void if it is a template or has overloads.
template <class Module>
auto type_of_forward() {
  if constexpr (requires { &Module::forward; })
    return std::type_identity<decltype(&Module::forward)>{};
  else return std::type_identity<void>{};
}

template <class Module>
class CheckpointedBase : public Module {
 public:
  using Module::Module;
  explicit CheckpointedBase(const Module& other) : Module(other) {}
  CheckpointOptions options{};

 protected:
  template <class... Arguments>
  auto checkpointed(Arguments&&... arguments) {
    const auto owner = this->weak_from_this().lock();
    // Calls the wrapped module's own forward, not this one. The owner keeps the module until
    // backward.
    return checkpoint(
        options,
        [this, owner](auto&&... a) {
          return this->Module::forward(std::forward<decltype(a)>(a)...);
        },
        std::forward<Arguments>(arguments)...);
  }
};

template <class Module, class Forward>
class CheckpointedWith : public CheckpointedBase<Module> {
 public:
  using CheckpointedBase<Module>::CheckpointedBase;
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    return this->checkpointed(std::forward<Arguments>(arguments)...);
  }
};
// For a forward that is one function: the module can be part of a torch::nn::Sequential, which asks
// for that type.
template <class Module, class Owner, class Result, class... Arguments>
class CheckpointedWith<Module, Result (Owner::*)(Arguments...)> : public CheckpointedBase<Module> {
 public:
  using CheckpointedBase<Module>::CheckpointedBase;
  Result forward(Arguments... arguments) {
    return this->checkpointed(std::forward<Arguments>(arguments)...);
  }
};

template <class Module>
class CheckpointedImpl
    : public CheckpointedWith<Module, typename decltype(type_of_forward<Module>())::type> {
 public:
  using Base = CheckpointedWith<Module, typename decltype(type_of_forward<Module>())::type>;
  using Base::Base;
  /// For the module of a holder; both have the same parameters.
  template <class Holder>
  requires requires(const Holder& h) { static_cast<const Module&>(*h.ptr()); }
  explicit CheckpointedImpl(const Holder& holder)
      : Base(static_cast<const Module&>(*holder.ptr())) {}

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    const auto copy = std::dynamic_pointer_cast<Module>(Module::clone(device));
    auto again = std::make_shared<CheckpointedImpl>(static_cast<const Module&>(*copy));
    again->options = this->options;
    return again;
  }
};

/// Module: a module's type, or its holder's.
template <class Module>
class Checkpointed
    : public torch::nn::ModuleHolder<CheckpointedImpl<typename ModuleTypeOf<Module>::type>> {
 public:
  using Impl = CheckpointedImpl<typename ModuleTypeOf<Module>::type>;
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;
};

}  // namespace reprise::fronts

namespace reprise {
using fronts::Checkpointed;
using fronts::CheckpointedImpl;
}  // namespace reprise
