// SPDX-License-Identifier: Apache-2.0
// Text that others chose, on somebody's terminal: a process names itself, a VM and a Node's annotation are
// named by whoever made them. Control characters (C0, DEL, C1), and bytes that are no UTF-8, are told and not
// obeyed: "\x1b".
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// All on one line: a line break is told too.
std::string visible_line(std::string_view text);

/// The colours of canvas.h: kept in a text that no other's word can have brought them into.
enum class Colours { told, kept };

/// A text that is laid out already keeps its line breaks and tabs.
std::string visible_lines(std::string_view text, Colours colours = Colours::told);

/// Of a JSON text: the control characters that JSON lets stand in strings become escapes of its own, and it
/// stays the same document.
std::string visible_json(std::string_view json);

}  // namespace ferry
