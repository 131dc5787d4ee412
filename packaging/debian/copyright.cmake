# Run by cpack on what it is about to pack: Debian has the license in /usr/share/doc/<package>/copyright.

file(GLOB license "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/licenses/reprise/LICENSE")
set(doc "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc/${CPACK_PACKAGE_NAME}")
file(MAKE_DIRECTORY "${doc}")
file(RENAME "${license}" "${doc}/copyright")
file(REMOVE_RECURSE "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/licenses")
