#pragma once
// SignatureBytes joins numbers, flags and names to bytes that can be compared: different sequences
// give different bytes.
//
// ```cpp
// SignatureBytes bytes;
// bytes.add(true);
// bytes.add(std::string("relu"));
// const std::string signature = std::move(bytes).take();
// ```

#include <cstdint>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

class SignatureBytes {
 public:
  void add(std::int64_t x) { bytes_.append(reinterpret_cast<const char*>(&x), sizeof x); }
  void add(bool x) { bytes_ += x ? '1' : '0'; }
  void add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    bytes_ += text;
  }
  void add_address(const void* p) {
    add(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(p)));
  }
  /// The tensor's identity, whatever its storage.
  void add_identity(const at::Tensor& t) { add_address(t.unsafeGetTensorImpl()); }
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

}  // namespace reprise::tensors
