# An overlay port that packs the tree it stands in: vcpkg install reprise --overlay-ports=<tree>/packaging/vcpkg

set(VCPKG_BUILD_TYPE release)  # header-only

get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DREPRISE_BUILD_TESTS=OFF
        -DREPRISE_BUILD_EXAMPLES=OFF
        -DREPRISE_BUILD_BENCH=OFF
        -DREPRISE_LIBTORCH=OFF  # what is installed is the same with it
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/reprise)

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib" "${CURRENT_PACKAGES_DIR}/share/licenses")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
