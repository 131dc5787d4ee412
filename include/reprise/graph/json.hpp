#pragma once
// Reads and writes reprise.graph, version 1: a StepGraph as a JSON document.
//
// ```cpp
// StepGraph graph = read_graph_file("toy.json");
// write_graph(std::cout, graph);                 // the same document again
// ```
//
// A document that is read and written again stays the same JSON document. Only white space, the
// order of members and the format of numbers (10 or 10.0) may change. Members that the graph has no
// field for are kept as JSON text in `extra`.
//
//   {"id": 2, "name": "h", "bytes": 8192, "role": "activation", "persistent": false, "shape": [8, 256]}
//     value.extra == R"({"persistent":false,"shape":[8,256]})"        a default that the file spells out is kept too
//   {"id": 0, "name": "norm", "time_us": 1, "inputs": [], "outputs": [2]}
//     node.extra == R"({"op":null,"phase":null})"                     null for what the writer would write and the file left out
//
// Node::forward is the member `forward_node`, which other tools need not know.

#include <reprise/graph/read_graph.hpp>
#include <reprise/graph/write_graph.hpp>
