// SPDX-License-Identifier: Apache-2.0
// Makes other people's text safe for a terminal: a process names itself, and users name VMs and write
// annotations. Control characters (C0, DEL, C1, and those that reorder text, as U+202E) and bytes that are no
// UTF-8 become escapes: "\x1b".
#pragma once

#include <string>
#include <string_view>

namespace ferry {

bool is_utf8(std::string_view text);

/// Escapes line breaks too, so that all is on one line.
std::string visible_line(std::string_view text);

/// `kept` keeps the colours of tinted() (text_output.h): only for a text whose outside parts cannot contain
/// them.
enum class Colours { escaped, kept };

/// Keeps line breaks and tabs, for a text that is laid out already.
std::string visible_lines(std::string_view text, Colours colours = Colours::escaped);

/// Turns the control characters that JSON permits in strings into escapes of JSON; the document stays the
/// same. Bytes that are no UTF-8, which JSON does not permit, become U+FFFD.
std::string visible_json(std::string_view json);

}  // namespace ferry
