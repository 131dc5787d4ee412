// Bytes to compare.

#include <torch/torch.h>

#include <string>
#include <utility>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/signature_bytes.hpp>

using namespace reprise::tensors;
using torch::Tensor;

namespace {

template <class... Parts>
std::string all(const Parts&... parts) {
  SignatureBytes bytes;
  (bytes.add(parts), ...);
  return std::move(bytes).take();
}
std::string layout(const Tensor& t) {
  SignatureBytes bytes;
  bytes.add_layout(t);
  return std::move(bytes).take();
}
std::string identity(const Tensor& t) {
  SignatureBytes bytes;
  bytes.add_identity(t);
  return std::move(bytes).take();
}

}  // namespace

TEST_CASE("names one behind the other are told apart") {
  const std::string a = "a", ab = "ab", bc = "bc", c = "c", none;
  CHECK(all(ab, c) != all(a, bc));
  CHECK(all(none, a) != all(a, none));
  CHECK(all(true) != all(false));
  CHECK(all(std::int64_t{1}) != all(std::int64_t{2}));
  CHECK(all(a, true, std::int64_t{3}) == all(a, true, std::int64_t{3}));
}

TEST_CASE("a tensor's layout is what a kernel sees of it without its bytes") {
  const Tensor t = torch::ones({2, 3});
  CHECK(layout(t) == layout(torch::zeros({2, 3})));
  CHECK(layout(t) != layout(torch::ones({3, 2})));
  CHECK(layout(t) != layout(torch::ones({3, 2}).t()));
  CHECK(layout(t) != layout(torch::ones({2, 3}, torch::kDouble)));
  CHECK(layout(t) != layout(torch::ones({2, 3}).requires_grad_()));
  CHECK(layout(t) != layout(t.to_sparse()));
  CHECK(layout(t) != layout(Tensor()));
  const Tensor z = torch::complex(t, t);
  CHECK(layout(z) != layout(torch::conj(z)));
}

TEST_CASE("a tensor's identity is its own, whatever lies in it") {
  const Tensor t = torch::ones({2}), same = t, other = t.detach();
  CHECK(identity(t) == identity(same));
  CHECK(identity(t) != identity(other));
}
