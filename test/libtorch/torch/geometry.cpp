// How a tensor lies in its storage.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/geometry.hpp>

using namespace reprise::tensors;
using torch::Tensor;

TEST_CASE("a tensor's geometry is its sizes, strides, offset and type, whatever storage it has") {
  const Tensor t = torch::arange(32, torch::kFloat).view({4, 8});
  const Geometry column = geometry_of(t.select(1, 3));
  CHECK(column.sizes == c10::SmallVector<std::int64_t, 5>{4});
  CHECK(column.strides == c10::SmallVector<std::int64_t, 5>{8});
  CHECK(column.offset == 3);
  CHECK(column.dtype == torch::kFloat);
  CHECK(column == geometry_of(t.clone().select(1, 3)));
  CHECK_FALSE(column == geometry_of(t.select(1, 2)));                  // offset
  CHECK_FALSE(column == geometry_of(t.select(1, 3).narrow(0, 0, 3)));  // sizes
  CHECK_FALSE(column == geometry_of(t.view({-1}).narrow(0, 3, 4)));    // strides
  CHECK_FALSE(column == geometry_of(t.to(torch::kInt).select(1, 3)));  // type
}

TEST_CASE("a tensor over another storage lies there as its geometry says") {
  const Tensor t = torch::arange(32, torch::kFloat).view({4, 8}), column = t.select(1, 3);
  const Tensor again = tensor_over(t.storage(), geometry_of(column), t);
  CHECK(again.equal(column));
  CHECK(again.const_data_ptr() == column.const_data_ptr());
  CHECK(lies_as(again, geometry_of(column)));
  CHECK_FALSE(again.requires_grad());
  CHECK_FALSE(again.is_inference());
}

TEST_CASE(
    "lazy conjugates and negatives, and numbers that were wrapped, are part of the geometry") {
  const Tensor z = torch::complex(torch::ones({3}), torch::ones({3}));
  const Tensor conjugate = torch::conj(z), imaginary = torch::imag(torch::conj(z));
  REQUIRE(conjugate.is_conj());
  REQUIRE(imaginary.is_neg());
  for (const Tensor& t : {conjugate, imaginary}) {
    const Geometry g = geometry_of(t);
    CHECK(tensor_over(t.storage(), g, t).equal(t));
    Geometry plain = g;
    plain.conjugate = plain.negative = false;
    CHECK_FALSE(plain == g);
    CHECK_FALSE(lies_as(t, plain));
    CHECK_FALSE(tensor_over(t.storage(), plain, t).equal(t));
  }
  Tensor number = torch::tensor(2.0, torch::kDouble);
  const Geometry plain = geometry_of(number);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  const Geometry wrapped = geometry_of(number);
  CHECK(wrapped.wrapped_number);
  CHECK_FALSE(wrapped == plain);
  CHECK_FALSE(lies_as(number, plain));
  // a number does not make floats doubles
  const Tensor again = tensor_over(number.storage(), wrapped, number);
  CHECK((torch::ones({2}) * again).scalar_type() == torch::kFloat);
}

TEST_CASE("only plain strided memory has a geometry") {
  CHECK(is_plain(torch::ones({2, 2}).t()));
  CHECK_FALSE(is_plain(torch::ones({2, 2}).to_sparse()));
  CHECK_FALSE(is_plain(torch::quantize_per_tensor(torch::ones({2}), 0.1, 0, torch::kQInt8)));
}

TEST_CASE("a tensor lies as its own geometry says, and as no other") {
  const Tensor h = torch::ones({4, 8});
  const std::vector<Tensor> all{h,
                                h.t(),
                                h.narrow(0, 1, 2),
                                h.narrow(0, 0, 2),
                                h.view({8, 4}),
                                h.view(torch::kInt),
                                h.select(1, 0),
                                h.as_strided({4, 8}, {1, 4}),
                                torch::view_as_complex(h.view({4, 4, 2})),
                                torch::view_as_complex(h.view({4, 4, 2})).conj(),
                                torch::ones({}),
                                h[0][0]};
  for (const Tensor& a : all)
    for (const Tensor& b : all)
      CHECK(lies_as(a, geometry_of(b)) == (geometry_of(a) == geometry_of(b)));
  Tensor number = torch::ones({});
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  CHECK(lies_as(number, geometry_of(number)));
  CHECK_FALSE(lies_as(number, geometry_of(torch::ones({}))));
}
