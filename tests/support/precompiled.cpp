// SPDX-License-Identifier: Apache-2.0
#include "tests/support/precompiled.h"

template class nlohmann::basic_json<>;
template nlohmann::json nlohmann::json::parse(const char*&&, nlohmann::json::parser_callback_t, bool, bool);
template nlohmann::json nlohmann::json::parse(const std::string&, nlohmann::json::parser_callback_t, bool,
                                              bool);
