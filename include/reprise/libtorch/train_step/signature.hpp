#pragma once
// signature_of() returns the signature of a call: everything about the arguments, the model and
// LibTorch's settings that decides which ops run and with which bits. A captured step is valid for
// all calls with its signature. Values of tensors are not part of it.
//
//   signature_of(model, {x, y})      bytes to compare; x of another shape, eval() instead of train(), another dropout probability,
//                                    another tensor in a parameter's place, a .grad that was not there before, another thread count:
//                                    another signature, and a capture of its own

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <reprise/libtorch/torch/model_tensors.hpp>
#include <reprise/libtorch/torch/signature_bytes.hpp>
#include <reprise/libtorch/torch/step_arguments.hpp>

namespace reprise::training {

/// Finds tensors that share a storage: adds the number of the first such tensor, and the offset
/// from it.
class SharedStorages {
 public:
  void add(SignatureBytes& bytes, const at::Tensor& t) {
    ++count_;
    // also for a tensor without elements: it may be the first of several
    if (!t.defined() || !t.has_storage()) return;
    const auto [first, added] =
        first_.try_emplace(t.storage().unsafeGetStorageImpl(), Place{count_, t.storage_offset()});
    if (added) return;
    bytes.add(count_);
    bytes.add(first->second.number);
    bytes.add(t.storage_offset() - first->second.offset);
  }

 private:
  struct Place {
    std::int64_t number, offset;
  };
  std::int64_t count_ = 0;
  std::unordered_map<const c10::StorageImpl*, Place> first_;
};

/// Adds the tensor's identity and the number of its gradient hooks.
inline void add_identity(SignatureBytes& bytes, const at::Tensor& t) {
  bytes.add_identity(t);
  bytes.add(static_cast<std::int64_t>(torch::autograd::impl::hooks(t).size()));
}

/// LibTorch's switches that decide which ops or kernels run.
inline void add_switches(SignatureBytes& bytes) {
  bytes.add(at::GradMode::is_enabled());
  bytes.add(c10::InferenceMode::is_enabled());
  bytes.add(at::autocast::is_autocast_enabled(at::kCPU));
  bytes.add(static_cast<std::int64_t>(at::autocast::get_autocast_dtype(at::kCPU)));
  bytes.add(static_cast<std::int64_t>(at::get_num_threads()));
  bytes.add(static_cast<std::int64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
  const at::Context& context = at::globalContext();
  bytes.add(context.deterministicAlgorithms());
  bytes.add(context.userEnabledMkldnn());
  bytes.add(context.userEnabledFlashSDP());
  bytes.add(context.userEnabledMemEfficientSDP());
  bytes.add(context.userEnabledMathSDP());
}

/// `modules`: the modules' state as module_state.hpp describes it.
[[nodiscard]] inline std::string signature_of(const ModelTensors& model, const std::string& modules,
                                              const StepArguments& arguments) {
  SignatureBytes bytes;
  SharedStorages shared;
  const auto add_leaf = [&](const at::Tensor& t) {
    const at::Tensor gradient = t.is_leaf() && t.requires_grad() ? t.grad() : at::Tensor();
    bytes.add_layout(gradient);
    shared.add(bytes, gradient);
  };
  bytes.add(modules);
  for (const NamedTensor& p : model.parameters) {
    bytes.add_layout(p.tensor);
    shared.add(bytes, p.tensor);
    add_identity(bytes, p.tensor);
    add_leaf(p.tensor);
  }
  for (const NamedTensor& b : model.buffers) {
    bytes.add_layout(b.tensor);
    shared.add(bytes, b.tensor);
    bytes.add_identity(b.tensor);
  }
  bytes.add(arguments.plain);
  for (const at::Tensor& t : arguments.tensors) {
    bytes.add_layout(t);
    bytes.add(t.is_leaf());
    shared.add(bytes, t);
    add_leaf(t);
  }
  add_switches(bytes);
  return std::move(bytes).take();
}

/// Identifies the storages of the model's tensors. They are part of the signature only if the loss
/// function reads them through a tensor of its own, because set_data() does not change that tensor.
[[nodiscard]] inline std::string storages_of(const ModelTensors& model) {
  SignatureBytes bytes;
  for (const auto* tensors : {&model.parameters, &model.buffers})
    for (const NamedTensor& t : *tensors)
      bytes.add_address(t.tensor.defined() && t.tensor.has_storage()
                            ? t.tensor.storage().unsafeGetStorageImpl()
                            : nullptr);
  return std::move(bytes).take();
}

}  // namespace reprise::training
