// A folder for one test, gone with it; and whole files as bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <stdlib.h>

namespace headrace {

class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "headrace-test-XXXXXX").string();
        path             = mkdtemp(name.data());
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder &)             = delete;
    TemporaryFolder & operator=(const TemporaryFolder &) = delete;

    std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const auto & item : std::filesystem::directory_iterator(path)) {
            found.push_back(item.path().filename().string());
        }
        return found;
    }

    std::filesystem::path path;
};

inline std::vector<uint8_t> read_bytes(const std::filesystem::path & path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::filesystem::path & path, const std::vector<uint8_t> & bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

} // namespace headrace
