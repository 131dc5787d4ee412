# One compile-fail test, see RepriseTest.cmake: COMPILER, INCLUDES (separated by |), SOURCE, REGEX.

string(REPLACE "|" ";" INCLUDES "${INCLUDES}")
list(TRANSFORM INCLUDES PREPEND "-I")
set(command "${COMPILER}" -std=c++20 -fsyntax-only ${INCLUDES})

execute_process(COMMAND ${command} "${SOURCE}" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} must compile without REPRISE_MUST_NOT_COMPILE, but does not:\n${output}")
endif()

execute_process(COMMAND ${command} -DREPRISE_MUST_NOT_COMPILE "${SOURCE}" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles with REPRISE_MUST_NOT_COMPILE, but must not")
endif()
if(NOT output MATCHES "${REGEX}")
  message(FATAL_ERROR "${SOURCE} is refused, but not with a message that matches '${REGEX}':\n${output}")
endif()
