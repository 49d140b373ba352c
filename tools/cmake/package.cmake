# Packages: cpack --config build/package/CPackConfig.cmake (the preset `package`). One .deb contains the commands, the libraries and the files that C and C++ programs need; it depends only on the system's C and C++ libraries and zlib.
set(CPACK_PACKAGE_NAME headroom)
set(CPACK_PACKAGE_VENDOR "Headroom")
set(CPACK_PACKAGE_CONTACT "The Headroom authors <headroom@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "See, reproduce, explain and fix GPU out-of-memory errors")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "A tensor runtime with pluggable GPU memory strategies, and commands that predict, reproduce and explain\n CUDA out-of-memory errors. Needs no GPU.")
# The loader must find the libraries, and forget them when the package is removed.
file(WRITE ${PROJECT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/triggers)
include(CPack)
