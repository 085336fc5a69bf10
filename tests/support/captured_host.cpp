// SPDX-License-Identifier: Apache-2.0
#include "tests/support/captured_host.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace ferry::test {
namespace {

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    ++i;
    if (text.at(i) == 'x') {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text.at(i) == 'n' ? '\n' : '\t';
    }
  }
  return out;
}

}  // namespace

CapturedHost::CapturedHost(const std::string& name)
    : CapturedHost(name, std::make_unique<ScratchDirectory>()) {}

CapturedHost::CapturedHost(const std::string& name, std::unique_ptr<ScratchDirectory> directory)
    : HostFs(directory->path()), directory_(std::move(directory)) {
  std::ifstream file(std::string(FERRY_HOSTS) + "/" + name);
  if (!file) throw std::runtime_error("no such host: " + name);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (const auto arrow = line.find(" -> "); arrow != std::string::npos) {
      directory_->link(line.substr(0, arrow), line.substr(arrow + 4));
    } else if (const auto equals = line.find(" = "); equals != std::string::npos) {
      directory_->file(line.substr(0, equals), unescaped(std::string_view(line).substr(equals + 3)));
    } else {
      directory_->directory(line);
    }
  }
}

std::vector<std::string> captured_hosts() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(FERRY_HOSTS))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace ferry::test
