#pragma once
// What must be the same for a captured step to stand for another call: everything about the arguments, the model and LibTorch's
// settings that decides which ops run and with which bits. Anything else (values of tensors) may change freely.
//
//   signature_of(model, {x, y})      bytes to compare; x of another shape, eval() instead of train(), a .grad that was not there
//                                    before, another thread count: another signature, and a capture of its own

#include <cstdint>
#include <string>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>

#include <reprise/libtorch/model_tensors.hpp>
#include <reprise/libtorch/step_arguments.hpp>

namespace reprise {

namespace detail {

class SignatureBytes {
 public:
  void add(std::int64_t x) { bytes_.append(reinterpret_cast<const char*>(&x), sizeof x); }
  void add(bool x) { bytes_ += x ? '1' : '0'; }
  void add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    bytes_ += text;
  }
  void add_layout(const at::Tensor& t) {
    add(t.defined());
    if (!t.defined()) return;
    add(static_cast<std::int64_t>(t.scalar_type()));
    add(static_cast<std::int64_t>(t.layout()));
    add(static_cast<std::int64_t>(t.device().type()));
    add(static_cast<std::int64_t>(t.device().index()));
    add(t.requires_grad());
    add(t.dim());
    for (std::int64_t n : t.sizes()) add(n);
    if (t.layout() != at::kStrided) return;
    for (std::int64_t n : t.strides()) add(n);
    add(t.is_conj());
    add(t.is_neg());
  }
  [[nodiscard]] std::string take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Two arguments over one storage are not two arguments: the position of the first with the same storage, and where it lies in it.
inline void add_sharing(SignatureBytes& bytes, const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].has_storage()) continue;
    for (std::size_t k = 0; k < i; ++k) {
      if (!tensors[k].has_storage() || !tensors[i].is_alias_of(tensors[k])) continue;
      bytes.add(static_cast<std::int64_t>(k));
      bytes.add(tensors[i].storage_offset() - tensors[k].storage_offset());
      break;
    }
  }
}

}  // namespace detail

/// `training` says for each module of the model whether it trains.
[[nodiscard]] inline std::string signature_of(const ModelTensors& model, const std::string& training, const StepArguments& arguments) {
  detail::SignatureBytes bytes;
  bytes.add(arguments.plain);
  for (const at::Tensor& t : arguments.tensors) {
    bytes.add_layout(t);
    bytes.add(t.is_leaf());
    if (t.is_leaf() && t.requires_grad()) bytes.add_layout(t.grad());
  }
  detail::add_sharing(bytes, arguments.tensors);
  bytes.add(training);
  for (const NamedTensor& p : model.parameters) {
    bytes.add_layout(p.tensor);
    bytes.add_layout(p.tensor.is_leaf() ? p.tensor.grad() : at::Tensor());
  }
  for (const NamedTensor& b : model.buffers) bytes.add_layout(b.tensor);
  bytes.add(at::GradMode::is_enabled());
  bytes.add(c10::InferenceMode::is_enabled());
  bytes.add(at::autocast::is_autocast_enabled(at::kCPU));
  bytes.add(static_cast<std::int64_t>(at::autocast::get_autocast_dtype(at::kCPU)));
  bytes.add(static_cast<std::int64_t>(at::get_num_threads()));
  bytes.add(static_cast<std::int64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
  bytes.add(at::globalContext().deterministicAlgorithms());
  return std::move(bytes).take();
}

}  // namespace reprise
