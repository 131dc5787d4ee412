#pragma once
// A Geometry is a tensor's position in its storage: everything that is needed to make an equal
// tensor over the same bytes.
//
//   h.select(1, 0) of a 4 × 8 float tensor h     {.sizes = {4}, .strides = {8}, .offset = 0, .dtype = float}
//
// A tensor is identified by its storage, the storage's version and its geometry; never by its
// TensorImpl, because autograd may unpack a saved tensor into a new one.

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

struct Geometry {
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
  std::int64_t offset = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool conjugate = false;
  bool negative = false;
  /// the tensor is a wrapped number, which does not take part in type promotion as a tensor does
  bool wrapped_number = false;

  bool operator==(const Geometry& other) const {
    return dtype == other.dtype && offset == other.offset && conjugate == other.conjugate &&
           negative == other.negative && wrapped_number == other.wrapped_number &&
           sizes == other.sizes && strides == other.strides;
  }
};

/// Whether the tensor is plain strided memory; anything else (sparse, mkldnn, nested, quantized)
/// has no geometry.
[[nodiscard]] inline bool is_plain(const at::Tensor& t) {
  return t.layout() == at::kStrided && t.has_storage() && !t.is_quantized() && !t.is_nested();
}

[[nodiscard]] inline Geometry geometry_of(const at::Tensor& t) {
  Geometry g;
  g.sizes.assign(t.sizes().begin(), t.sizes().end());
  g.strides.assign(t.strides().begin(), t.strides().end());
  g.offset = t.storage_offset();
  g.dtype = t.scalar_type();
  g.conjugate = t.is_conj();
  g.negative = t.is_neg();
  g.wrapped_number = t.unsafeGetTensorImpl()->is_wrapped_number();
  return g;
}

/// The same as geometry_of(t) == g.
[[nodiscard]] inline bool lies_as(const at::Tensor& t, const Geometry& g) {
  return g.dtype == t.scalar_type() && g.offset == t.storage_offset() &&
         t.sizes() == c10::IntArrayRef(g.sizes) && t.strides() == c10::IntArrayRef(g.strides) &&
         g.conjugate == t.is_conj() && g.negative == t.is_neg() &&
         g.wrapped_number == t.unsafeGetTensorImpl()->is_wrapped_number();
}

/// A tensor over `storage` with the geometry `g` and no autograd graph. `like` gives the dispatch
/// keys. The autograd keys stay: without them, the tensor would be an inference tensor, which
/// counts no writes.
[[nodiscard]] inline at::Tensor tensor_over(c10::Storage storage, const Geometry& g,
                                            const at::Tensor& like) {
  const c10::DispatchKeySet keys =
      like.key_set().remove(c10::DispatchKey::Conjugate).remove(c10::DispatchKey::Negative);
  auto t = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), keys,
                                                    c10::scalarTypeToTypeMeta(g.dtype));
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(g.sizes, g.strides, g.offset);
  if (g.wrapped_number) impl->set_wrapped_number(true);
  t._set_conj(g.conjugate);
  t._set_neg(g.negative);
  return t;
}

}  // namespace reprise::tensors
