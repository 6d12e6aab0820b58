// The entry point of the host tests; run by tests/native/test_host.py, one pytest case per test case.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
