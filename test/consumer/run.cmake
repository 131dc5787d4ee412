# Builds and runs the consumer in a fresh folder: WAY (add_subdirectory or find_package), SIDE (core or libtorch), SOURCE_DIR and
# BUILD_DIR of Reprise, WORK_DIR, GENERATOR, COMPILER, FLAGS, PREFIX_PATH (separated by |), VERSION.

set(options -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
  "-DREPRISE_WAY=${WAY}" "-DREPRISE_SIDE=${SIDE}" "-DREPRISE_SOURCE_DIR=${SOURCE_DIR}" "-DREPRISE_VERSION=${VERSION}")
if(SIDE STREQUAL "core")
  list(APPEND options -DREPRISE_LIBTORCH=OFF -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON)
  set(expected "toy: 1 node, 4.00 KiB persistent\n")
else()
  string(REPLACE "|" "\\;" PREFIX_PATH "${PREFIX_PATH}")
  list(APPEND options "-DCMAKE_PREFIX_PATH=${PREFIX_PATH}")
  set(expected "captured 1, replayed 2\n")
endif()

file(REMOVE_RECURSE "${WORK_DIR}")
if(WAY STREQUAL "find_package")
  execute_process(COMMAND ${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${WORK_DIR}/prefix" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND options "-Dreprise_ROOT=${WORK_DIR}/prefix")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} -S "${SOURCE_DIR}/test/consumer" -B "${WORK_DIR}/build" ${options} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK_DIR}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${WORK_DIR}/build/consumer" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "the consumer printed something else than ${expected}: ${output}")
endif()
