# The models and what all example programs share, compiled once for examples, benchmarks and tests.

if(REPRISE_HAS_LIBTORCH)
  reprise_add_library(reprise_examples_common LIBTORCH SOURCES
    examples/models/registry.cpp
    examples/support/step_engine.cpp
    examples/support/train_main.cpp
    examples/support/trainer.cpp
  )
  target_include_directories(reprise_examples_common PUBLIC examples)
endif()
