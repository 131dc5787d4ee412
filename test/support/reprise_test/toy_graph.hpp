#pragma once
// The toy step of the plan format: batch norm, an in-place ReLU, a view, something wide, and a
// backward node.

#include <string>

#include <reprise/graph/builder.hpp>

namespace reprise_test {

/// As the format's own page has it.
inline constexpr const char* toy_document = R"({
  "format": "reprise.graph", "version": 1, "name": "toy",
  "values": [
    {"id": 0, "name": "x", "bytes": 4096, "role": "input", "persistent": true},
    {"id": 1, "name": "mean", "bytes": 64, "role": "buffer", "persistent": true},
    {"id": 2, "name": "h", "bytes": 8192, "role": "activation"},
    {"id": 3, "name": "h.relu", "bytes": 0, "role": "activation", "overwrites": 2},
    {"id": 4, "name": "h.flat", "bytes": 0, "role": "activation", "alias_of": 3},
    {"id": 5, "name": "wide", "bytes": 16384, "role": "activation"},
    {"id": 6, "name": "loss", "bytes": 4, "role": "other"},
    {"id": 7, "name": "g", "bytes": 4096, "role": "gradient"}
  ],
  "nodes": [
    {"id": 0, "name": "norm", "op": "aten::native_batch_norm", "phase": "forward", "time_us": 120.5,
     "workspace_bytes": 256, "inputs": [0], "outputs": [2], "updates": [1]},
    {"id": 1, "name": "relu", "op": "aten::relu_", "phase": "forward", "time_us": 10, "inputs": [2], "outputs": [3]},
    {"id": 2, "name": "flat", "op": "aten::view", "phase": "forward", "time_us": 0, "inputs": [3], "outputs": [4]},
    {"id": 3, "name": "wide", "op": "aten::repeat", "phase": "forward", "time_us": 30, "inputs": [0], "outputs": [5]},
    {"id": 4, "name": "sum", "op": "aten::sum", "phase": "forward", "time_us": 8, "inputs": [5], "outputs": [6]},
    {"id": 5, "name": "grad", "op": "aten::threshold_backward", "phase": "backward", "time_us": 20, "inputs": [0, 4], "outputs": [7]}
  ],
  "outputs": [6, 7]
})";

/// The same, made with the builder. Ids in files and indices are equal.
[[nodiscard]] inline reprise::StepGraph toy_graph() {
  using namespace reprise;
  using namespace reprise::literals;
  GraphBuilder b{"toy"};
  const ValueId x =
      b.add_value({.id = 0, .name = "x", .bytes = 4096_B, .role = Role::input, .persistent = true});
  const ValueId mean = b.add_value(
      {.id = 1, .name = "mean", .bytes = 64_B, .role = Role::buffer, .persistent = true});
  const ValueId h = b.add_value({.id = 2, .name = "h", .bytes = 8192_B, .role = Role::activation});
  const ValueId relu =
      b.add_value({.id = 3, .name = "h.relu", .role = Role::activation, .overwrites = h});
  const ValueId flat =
      b.add_value({.id = 4, .name = "h.flat", .role = Role::activation, .alias_of = relu});
  const ValueId wide =
      b.add_value({.id = 5, .name = "wide", .bytes = 16384_B, .role = Role::activation});
  const ValueId loss = b.add_value({.id = 6, .name = "loss", .bytes = 4_B, .role = Role::other});
  const ValueId g = b.add_value({.id = 7, .name = "g", .bytes = 4096_B, .role = Role::gradient});
  b.add_node({.id = 0,
              .name = "norm",
              .op = "aten::native_batch_norm",
              .time = {120.5},
              .workspace = 256_B},
             {x}, {h}, {mean});
  b.add_node({.id = 1, .name = "relu", .op = "aten::relu_", .time = {10}}, {h}, {relu});
  b.add_node({.id = 2, .name = "flat", .op = "aten::view"}, {relu}, {flat});
  b.add_node({.id = 3, .name = "wide", .op = "aten::repeat", .time = {30}}, {x}, {wide});
  b.add_node({.id = 4, .name = "sum", .op = "aten::sum", .time = {8}}, {wide}, {loss});
  b.add_node({.id = 5,
              .name = "grad",
              .op = "aten::threshold_backward",
              .phase = Phase::backward,
              .time = {20}},
             {x, flat}, {g});
  b.add_output(loss);
  b.add_output(g);
  return std::move(b).build();
}

/// p is persistent; read(p) -> a; write(a) puts a new p; last(a) -> b.
[[nodiscard]] inline reprise::StepGraph parameter_step() {
  using namespace reprise;
  using namespace reprise::literals;
  GraphBuilder b;
  const ValueId p = b.add_value({.id = 0, .name = "p", .bytes = 8_B, .persistent = true}),
                a = b.add_value({.id = 1, .name = "a", .bytes = 8_B}),
                c = b.add_value({.id = 2, .name = "b", .bytes = 8_B});
  b.add_node({.id = 0, .name = "read"}, {p}, {a});
  b.add_node({.id = 1, .name = "write", .recomputable = false}, {a}, {p});
  b.add_node({.id = 2, .name = "last"}, {a}, {c});
  b.add_output(c);
  return std::move(b).build();
}

}  // namespace reprise_test
