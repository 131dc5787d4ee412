# Builds and runs the consumer in a fresh folder.
#
#   WAY          add_subdirectory, fetch_content or find_package
#   SIDE         core, libtorch or linked
#   SOURCE_DIR   Reprise's; also where the consumer is copied from: it is built outside the tree
#   PREFIX       for find_package: where Reprise is installed. Without it BUILD_DIR is installed, and the result moved elsewhere
#   WORK_DIR, GENERATOR, COMPILER, FLAGS, PREFIX_PATH (separated by |), VERSION
#   OPTIONS      more for the configuration, separated by |

cmake_minimum_required(VERSION 3.25)
string(REPLACE "|" ";" OPTIONS "${OPTIONS}")
set(options -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}" ${OPTIONS}
  "-DREPRISE_WAY=${WAY}" "-DREPRISE_SIDE=${SIDE}" "-DREPRISE_VERSION=${VERSION}" "-DREPRISE_SOURCE=${SOURCE_DIR}")
if(SIDE STREQUAL "core")
  list(APPEND options -DREPRISE_LIBTORCH=OFF -Werror=dev)  # a warning of CMake's is not the user's to mend; LibTorch's package has some
else()
  string(REPLACE "|" "\\;" PREFIX_PATH "${PREFIX_PATH}")
  list(APPEND options "-DCMAKE_PREFIX_PATH=${PREFIX_PATH}")
endif()

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(expect expected)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "the consumer printed something else than\n${expected}\nnamely\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
file(COPY "${SOURCE_DIR}/test/consumer" DESTINATION "${WORK_DIR}")
if(WAY STREQUAL "find_package" AND NOT PREFIX)
  execute_process(COMMAND ${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${WORK_DIR}/installed" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(MAKE_DIRECTORY "${WORK_DIR}/moved")
  file(RENAME "${WORK_DIR}/installed" "${WORK_DIR}/moved/elsewhere")
  set(PREFIX "${WORK_DIR}/moved/elsewhere")
  file(GLOB_RECURSE installed "${PREFIX}/*.cmake")
  foreach(file IN LISTS installed)
    file(READ "${file}" text)
    foreach(path IN ITEMS "${BUILD_DIR}" "${SOURCE_DIR}" "${WORK_DIR}")
      string(FIND "${text}" "${path}" place)
      if(NOT place EQUAL -1)
        message(FATAL_ERROR "${file} names ${path}: what is installed cannot be moved")
      endif()
    endforeach()
  endforeach()
endif()
if(PREFIX)
  list(APPEND options "-Dreprise_ROOT=${PREFIX}")
endif()
if(WAY STREQUAL "fetch_content")  # what a release's archive has at least
  run(${CMAKE_COMMAND} -E chdir "${SOURCE_DIR}" ${CMAKE_COMMAND} -E tar czf "${WORK_DIR}/reprise.tar.gz" CMakeLists.txt LICENSE cmake include)
  list(APPEND options "-DREPRISE_SOURCE=${WORK_DIR}/reprise.tar.gz")
endif()

run(${CMAKE_COMMAND} -S "${WORK_DIR}/consumer" -B "${WORK_DIR}/build" ${options})
run(${CMAKE_COMMAND} --build "${WORK_DIR}/build")
if(SIDE STREQUAL "core")
  expect("chain: 48.00 KiB to 40.00 KiB, 1 recomputed\n" "${WORK_DIR}/build/consumer")
elseif(SIDE STREQUAL "linked")
  expect("4096 bytes of LibTorch's are counted\n" "${WORK_DIR}/build/consumer")
else()
  expect("replayed 2, guided 1\n" "${WORK_DIR}/build/two_parts")
  expect("one allocator, replayed 2 and 2, guided 1\n" "${WORK_DIR}/build/two_libraries" "${WORK_DIR}/build/libsecond.so")
endif()
