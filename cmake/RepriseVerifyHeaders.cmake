# Targets that compile each public header alone:
#
#   verify_core_headers       what is free of LibTorch; part of scripts/test
#   verify_libtorch_headers   the rest; tens of minutes, so a target of its own: scripts/test --full builds it, .ci/run does not

set_target_properties(reprise PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
add_custom_target(verify_core_headers)
add_dependencies(verify_core_headers reprise_verify_interface_header_sets)

if(REPRISE_HAS_LIBTORCH AND reprise_libtorch_headers)
  set_target_properties(reprise_libtorch PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)
  add_custom_target(verify_libtorch_headers)
  add_dependencies(verify_libtorch_headers reprise_libtorch_verify_interface_header_sets)
endif()
