#pragma once
// reprise.graph, version 1: a StepGraph as a JSON document, in and out.
//
// ```cpp
// StepGraph graph = read_graph_file("toy.json");
// write_graph(std::cout, graph);                 // the same document again
// ```
//
// A document that is read and written again is the same JSON document, up to white space, the order
// of members and the way in which a number is written (10 or 10.0): what the graph has no place for
// is kept as JSON text in `extra`.
//
//   {"id": 2, "name": "h", "bytes": 8192, "role": "activation", "persistent": false, "shape": [8, 256]}
//     value.extra == R"({"persistent":false,"shape":[8,256]})"        a default that the file spells out is kept there, too
//   {"id": 0, "name": "norm", "time_us": 1, "inputs": [], "outputs": [2]}
//     node.extra == R"({"op":null,"phase":null})"                     null for what the writer would write and the file left out
//
// Node::forward is the member `forward_node`, which other tools need not know.

#include <reprise/graph/read_graph.hpp>
#include <reprise/graph/write_graph.hpp>
