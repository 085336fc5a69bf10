// SPDX-License-Identifier: Apache-2.0
// The last part of the header that all tests share (tests/CMakeLists.txt). It has the templates that most
// tests use compiled once, in precompiled.cpp, instead of in each file. No source includes it: a test
// compiles without it, only more slowly.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
extern template nlohmann::json nlohmann::json::parse(const char*&&, nlohmann::json::parser_callback_t, bool,
                                                     bool);
extern template nlohmann::json nlohmann::json::parse(const std::string&, nlohmann::json::parser_callback_t,
                                                     bool, bool);
