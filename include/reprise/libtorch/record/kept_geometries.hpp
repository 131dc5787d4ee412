#pragma once
// The geometries of a recording's values, each once: most values of a step lie as others do.
//
// ```cpp
// KeptGeometries kept;
// const Geometry& a = kept.of(torch::zeros({4, 8}));
// const Geometry& b = kept.of(torch::ones({4, 8}));    // the same object
// ```

#include <cstdint>
#include <deque>
#include <utility>

#include <reprise/base/flat_index.hpp>
#include <reprise/libtorch/torch/geometry.hpp>

namespace reprise::recording {

class KeptGeometries {
 public:
  KeptGeometries() = default;
  KeptGeometries(const KeptGeometries&) = delete;  // whoever has a reference has it of this one
  KeptGeometries& operator=(const KeptGeometries&) = delete;
  KeptGeometries(KeptGeometries&&) = default;
  KeptGeometries& operator=(KeptGeometries&&) = default;

  [[nodiscard]] const Geometry& of(const at::Tensor& t) {
    const std::uint64_t key = hash(t.sizes(), t.strides(), t.storage_offset(), t.scalar_type());
    const std::uint32_t known = index_.find(key);
    if (known != FlatIndex::none && lies_as(t, all_[known])) return all_[known];
    return add(key, geometry_of(t));
  }
  [[nodiscard]] const Geometry& of(Geometry g) {
    const std::uint64_t key = hash(g.sizes, g.strides, g.offset, g.dtype);
    const std::uint32_t known = index_.find(key);
    if (known != FlatIndex::none && all_[known] == g) return all_[known];
    return add(key, std::move(g));
  }
  [[nodiscard]] std::size_t size() const { return all_.size(); }

 private:
  static std::uint64_t hash(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::int64_t offset,
                            c10::ScalarType dtype) {
    std::uint64_t sum = 14695981039346656037ull;
    const auto add = [&](std::int64_t x) {
      sum = (sum ^ static_cast<std::uint64_t>(x)) * 1099511628211ull;
      sum ^= sum >> 32;
    };
    for (std::int64_t x : sizes) add(x);
    for (std::int64_t x : strides) add(x);
    add(offset);
    add(static_cast<std::int64_t>(dtype));
    return sum;
  }

  // One that differs from what has its hash is found as the newest of them.
  const Geometry& add(std::uint64_t key, Geometry g) {
    index_.assign(key, static_cast<std::uint32_t>(all_.size()));
    all_.push_back(std::move(g));
    return all_.back();
  }

  std::deque<Geometry> all_;
  FlatIndex index_;
};

}  // namespace reprise::recording
