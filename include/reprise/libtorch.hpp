#pragma once
// Everything that works with LibTorch. Including it installs the counting allocator (libtorch/counting_allocator.hpp).

#include <reprise/libtorch/allocation_trace.hpp>
#include <reprise/libtorch/allocator_probe.hpp>
#include <reprise/libtorch/arena.hpp>
#include <reprise/libtorch/call_again.hpp>
#include <reprise/libtorch/capture.hpp>
#include <reprise/libtorch/counting_allocator.hpp>
#include <reprise/libtorch/graph_of.hpp>
#include <reprise/libtorch/libtorch_backend.hpp>
#include <reprise/libtorch/guide.hpp>
#include <reprise/libtorch/memory_budget.hpp>
#include <reprise/libtorch/memory_limit.hpp>
#include <reprise/libtorch/program.hpp>
#include <reprise/libtorch/recorder.hpp>
#include <reprise/libtorch/scope.hpp>
#include <reprise/libtorch/step_check.hpp>
#include <reprise/libtorch/step_options.hpp>
#include <reprise/libtorch/step_report.hpp>
#include <reprise/libtorch/step_runner.hpp>
#include <reprise/libtorch/step_storages.hpp>
#include <reprise/libtorch/train_step.hpp>
