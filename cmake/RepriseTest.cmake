# How tests are built and made known to ctest. The lists are in test/CMakeLists.txt. Labels, for ctest -L and -LE:
#
#   core, libtorch   what the test needs          example     an example program, run
#   build            compiles something itself    full        tagged [.full]: takes long
#   processor        again, as on another processor or with another number of threads

include(RepriseGroups)
set(REPRISE_TESTS_AT_ONCE 1 CACHE STRING "Files of tests that are compiled together: 10 saves most of the time where all are compiled")
if(NOT REPRISE_TESTS_AT_ONCE MATCHES "^[1-9][0-9]*$")
  message(FATAL_ERROR "REPRISE_TESTS_AT_ONCE is '${REPRISE_TESTS_AT_ONCE}': it must be a number of files, 1 or more")
endif()

find_package(Catch2 REQUIRED)  # 2.13 (Debian 12) or 3 (Ubuntu 24.04)

# main() and, with Catch2 2, the framework itself: compiled once for all test executables.
add_library(reprise_test_main OBJECT "${CMAKE_CURRENT_SOURCE_DIR}/support/main.cpp")
target_compile_features(reprise_test_main PRIVATE cxx_std_20)
target_link_libraries(reprise_test_main PUBLIC Catch2::Catch2)
target_include_directories(reprise_test_main PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/support")
if(REPRISE_HAS_LIBTORCH AND reprise_torch_old_abi)
  target_compile_definitions(reprise_test_main PUBLIC _GLIBCXX_USE_CXX11_ABI=0)  # it hands strings to tests that link LibTorch
endif()

# Where the two versions differ. 2 calls it a success when a name matches no test; 3 does not.
if(Catch2_VERSION VERSION_LESS 3)
  set(reprise_catch_list --list-test-names-only)
  set(reprise_catch_args --warn NoTests)
  set(reprise_catch_none_is_fine "")
else()
  set(reprise_catch_list --list-tests --verbosity quiet)
  set(reprise_catch_args "")
  set(reprise_catch_none_is_fine --allow-running-no-tests)
endif()

# Tests tagged [.full] are hidden from Catch2's own default; they get one entry of their own.
function(reprise_add_full_run target label)
  add_test(NAME "${label}: full" COMMAND ${target} "[full]" ${reprise_catch_none_is_fine})
  set_tests_properties("${label}: full" PROPERTIES LABELS "${label};full" TIMEOUT 3600 PROCESSORS 2)
endfunction()

# One ctest entry a test case, as the executable tells them when it has been built.
function(reprise_discover_tests target label timeout)
  set(list "${CMAKE_CURRENT_BINARY_DIR}/${target}.ctest.cmake")
  list(JOIN reprise_catch_list "|" list_options)
  list(JOIN reprise_catch_args "|" run_options)
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS "${list}" VERBATIM COMMAND ${CMAKE_COMMAND}
    -D "EXECUTABLE=$<TARGET_FILE:${target}>" -D "LIST_OPTIONS=${list_options}" -D "RUN_OPTIONS=${run_options}"
    -D "LABEL=${label}" -D "TIMEOUT=${timeout}" -D "OUTPUT=${list}"
    -P "${PROJECT_SOURCE_DIR}/cmake/discover_tests.cmake")
  set(include "${CMAKE_CURRENT_BINARY_DIR}/${target}.include.cmake")
  file(WRITE "${include}" "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n  add_test(${target}_is_not_built not_built)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include}")
endfunction()

# One executable for all that needs no LibTorch; one ctest entry a test case.
function(reprise_add_core_tests)
  reprise_group_sources(core_groups ${REPRISE_TESTS_AT_ONCE} ${ARGN})
  reprise_add_program(reprise_core_tests SOURCES ${core_groups} LIBRARIES reprise_test_main)
  target_compile_definitions(reprise_core_tests PRIVATE REPRISE_TEST_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
  target_include_directories(reprise_core_tests PRIVATE "${PROJECT_SOURCE_DIR}/examples")
  reprise_discover_tests(reprise_core_tests core 600)
  reprise_add_full_run(reprise_core_tests core)
endfunction()

# What runs on several threads, alone: an executable small enough to be built for the thread sanitizer on every occasion.
function(reprise_add_thread_tests)
  reprise_add_program(reprise_thread_tests SOURCES ${ARGN} LIBRARIES reprise_test_main)
  set_target_properties(reprise_thread_tests PROPERTIES EXCLUDE_FROM_ALL ON)
endfunction()

# One executable for all that needs LibTorch; one ctest entry a file, since loading LibTorch costs more than most tests do.
# What stands behind HEADERS takes so little that there is one entry a folder.
function(reprise_add_libtorch_tests)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "HEADERS")
  set(sources ${arg_UNPARSED_ARGUMENTS})
  set(stems "")
  foreach(source IN LISTS sources arg_HEADERS)
    get_filename_component(stem "${source}" NAME_WE)
    if(stem IN_LIST stems)
      message(FATAL_ERROR "two LibTorch tests are called ${stem}.cpp: each would be run with the other")
    endif()
    list(APPEND stems "${stem}")
  endforeach()
  reprise_group_sources(libtorch_groups ${REPRISE_TESTS_AT_ONCE} ${sources} ${arg_HEADERS})
  reprise_add_program(reprise_libtorch_tests LIBTORCH SOURCES ${libtorch_groups} LIBRARIES reprise_test_main reprise_examples_common)
  target_compile_definitions(reprise_libtorch_tests PRIVATE REPRISE_TEST_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
  foreach(source IN LISTS sources)
    get_filename_component(stem "${source}" NAME_WE)
    # -# tags every test with its file's name.
    reprise_add_libtorch_run("${stem}" "[#${stem}]~[full]")
    # Where a step is replayed or recorded as it is, kernels run on as many threads as the machine has. Of the others, most of
    # which search for plans or work on tensors of a few KiB, two run at once, with one thread each; the longest come first.
    if(NOT stem MATCHES "^(arena|capture|guided_threads|models|random_programs|recorder|replay_models|train_step|user_threads)$")
      set_tests_properties("libtorch: ${stem}" PROPERTIES PROCESSORS 1 ENVIRONMENT OMP_NUM_THREADS=1)
    endif()
    if(stem MATCHES "^guided(|_care|_random)$|^budget$" OR source MATCHES "/wild/")
      set_tests_properties("libtorch: ${stem}" PROPERTIES COST 100)
    endif()
  endforeach()
  set(rooms "")
  foreach(source IN LISTS arg_HEADERS)
    cmake_path(GET source PARENT_PATH room)
    get_filename_component(stem "${source}" NAME_WE)
    list(APPEND rooms "${room}")
    list(APPEND "tags_${room}" "[#${stem}]~[full]")
  endforeach()
  list(REMOVE_DUPLICATES rooms)
  foreach(room IN LISTS rooms)
    list(JOIN "tags_${room}" "," tags)
    string(REGEX REPLACE "^libtorch/" "" name "${room}")
    reprise_add_libtorch_run("headers of ${name}" "${tags}")
  endforeach()
  reprise_add_full_run(reprise_libtorch_tests libtorch)
endfunction()

# reprise_add_libtorch_run(<name> <tags>)
function(reprise_add_libtorch_run name tags)
  add_test(NAME "libtorch: ${name}" COMMAND reprise_libtorch_tests "-#" "${tags}" ${reprise_catch_args})
  set_tests_properties("libtorch: ${name}" PROPERTIES LABELS libtorch TIMEOUT 1200 PROCESSORS 2)
endfunction()

# reprise_add_processor_tests(<stem>...): files of the LibTorch tests that run again as on other
# processors. Kernels, and with them workspaces and times, differ from one instruction set to the
# next; what a test expects must not. Only those of the stems whose files are built.
function(reprise_add_processor_tests)
  set(variants
    "ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1"
    "ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=2"
    "OMP_NUM_THREADS=4")
  foreach(stem IN LISTS ARGN)
    if(NOT TEST "libtorch: ${stem}")
      continue()
    endif()
    foreach(variant IN LISTS variants)
      string(REPLACE " " ";" environment "${variant}")
      set(name "libtorch: ${stem} with ${variant}")
      add_test(NAME "${name}" COMMAND reprise_libtorch_tests "-#" "[#${stem}]~[full]" ${reprise_catch_args})
      set(processors 2)
      if(variant MATCHES "OMP_NUM_THREADS=1")
        set(processors 1)
      endif()
      set_tests_properties("${name}" PROPERTIES LABELS "libtorch;processor" TIMEOUT 1200 PROCESSORS ${processors} ENVIRONMENT "${environment}")
    endforeach()
  endforeach()
endfunction()

# Pairs of <file in test/compile_fail> <regex>. A file guards its offence with REPRISE_MUST_NOT_COMPILE: without it the file
# must compile, with it the compiler must refuse and its output must match. So a test cannot pass for another reason.
# LIBTORCH in front: the files include LibTorch.
function(reprise_add_compile_fail_tests)
  set(includes "$<TARGET_PROPERTY:reprise,INTERFACE_INCLUDE_DIRECTORIES>;${CMAKE_CURRENT_SOURCE_DIR}/support")
  set(labels build)
  if("${ARGV0}" STREQUAL "LIBTORCH")
    list(POP_FRONT ARGN)
    list(APPEND labels libtorch)
    set(includes "${includes};${TORCH_INCLUDE_DIRS}")
  endif()
  while(ARGN)
    list(POP_FRONT ARGN source regex)
    get_filename_component(stem "${source}" NAME_WE)
    add_test(NAME "compile_fail: ${stem}" COMMAND ${CMAKE_COMMAND}
      -D "COMPILER=${CMAKE_CXX_COMPILER}" -D "INCLUDES=$<JOIN:${includes},|>" -D "REGEX=${regex}"
      -D "SOURCE=${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/${source}"
      -P "${PROJECT_SOURCE_DIR}/cmake/run_compile_fail.cmake")
    set_tests_properties("compile_fail: ${stem}" PROPERTIES LABELS "${labels}" TIMEOUT 300)
  endwhile()
endfunction()

function(reprise_add_tree_test)
  add_test(NAME "tree" COMMAND ${CMAKE_COMMAND}
    -D "SOURCE_DIR=${PROJECT_SOURCE_DIR}" -D "COMPILER=${CMAKE_CXX_COMPILER}"
    -D "INCLUDES=$<JOIN:$<TARGET_PROPERTY:reprise,INTERFACE_INCLUDE_DIRECTORIES>,|>"
    -P "${CMAKE_CURRENT_SOURCE_DIR}/tree.cmake")
  add_test(NAME "layers" COMMAND ${CMAKE_COMMAND}
    -D "SOURCE_DIR=${PROJECT_SOURCE_DIR}" -P "${CMAKE_CURRENT_SOURCE_DIR}/layers.cmake")
  set_tests_properties("tree" "layers" PROPERTIES LABELS build TIMEOUT 300)
  find_program(REPRISE_PYTHON python3)
  add_test(NAME "style" COMMAND ${CMAKE_COMMAND}
    -D "SOURCE_DIR=${PROJECT_SOURCE_DIR}" -D "PYTHON=${REPRISE_PYTHON}" -D "WORK_DIR=${CMAKE_CURRENT_BINARY_DIR}/style"
    -P "${CMAKE_CURRENT_SOURCE_DIR}/style.cmake")
  set_tests_properties("style" PROPERTIES LABELS build TIMEOUT 300 SKIP_REGULAR_EXPRESSION "no python3 here")
endfunction()

# A project that uses Reprise as strangers do: from its source folder, and installed.
function(reprise_add_consumer_test way side)
  set(name "consumer: ${side}, ${way}")
  list(JOIN CMAKE_PREFIX_PATH "|" prefix_path)
  add_test(NAME "${name}" COMMAND ${CMAKE_COMMAND}
    -D "WAY=${way}" -D "SIDE=${side}" -D "SOURCE_DIR=${PROJECT_SOURCE_DIR}" -D "BUILD_DIR=${PROJECT_BINARY_DIR}"
    -D "WORK_DIR=${CMAKE_CURRENT_BINARY_DIR}/consumer/${side}_${way}" -D "GENERATOR=${CMAKE_GENERATOR}"
    -D "COMPILER=${CMAKE_CXX_COMPILER}" -D "FLAGS=${CMAKE_CXX_FLAGS}" -D "PREFIX_PATH=${prefix_path}" -D "VERSION=${PROJECT_VERSION}"
    -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/run.cmake")
  set(needs ${side})
  if(side STREQUAL "linked")
    set(needs libtorch)
  endif()
  set_tests_properties("${name}" PROPERTIES LABELS "build;${needs}" TIMEOUT 600)
  if(side STREQUAL "libtorch")
    set_tests_properties("${name}" PROPERTIES PROCESSORS 2)  # compiles two translation units at once
  endif()
endfunction()
