# SPDX-License-Identifier: Apache-2.0
#
# usage: awk -f scripts/man-calls.awk -v what=list|threads|pages|about [-v called="FUNCTION EXAMPLE ..."] HEADER.h...
#
#	list	the names of the public functions, one a line, those that are inline, too
#	threads	the same of those that the library exports, each with a tab and which threads may call it, as its
#		header says
#	pages	each function's page of section 3, for scdoc, behind a line with a form feed and its name
#	about	libverbena.7.scd, which is given as the last file, with what stands at the top of each
#		header, and its functions, put in
#
# What is read.  A comment belongs to what stands right below it, down to the next empty line or comment: a
# group.  One with an empty line below it belongs to all groups below, down to the next empty line.  In a
# comment a line that begins with a tab is code, and "  -EINVAL  text" an item, which goes on where lines are
# indented further.  A line "Threads: WORDS." says which threads may call the functions of the group, and "Threads of
# NAME: WORDS." of one that is not as the others.  Names between ` ` and of functions are set in bold.  A page has the
# types of its functions, and the constants that are spoken of on it.

BEGIN {
	bold = "*"
	everywhere = "Errors are negative: those of errno, and those that verbena/verbena.h adds; vb_strerror has their " \
		"words, and the log their cause.  What holds for all calls (NULL, threads, forked children) is in "
}

function trim(s) {
	sub(/^[ \t]+/, "", s)
	sub(/[ \t]+$/, "", s)
	return s
}

# ---- reading ----

FNR == 1 {
	header = FILENAME
	sub(/.*\//, "", header)
	scd = header ~ /\.scd$/
	if (!scd)
		headers[++n_headers] = header
	comment = group = ""
	heads = below = 0
	common = ""
	state = "out"
}

scd {
	template[++n_template] = $0
	next
}

state == "comment" {
	read_comment($0)
	next
}
state == "macro" {
	state = $0 ~ /\\$/ ? "macro" : "out"
	next
}
state == "inline" {
	if ($0 != "{") {
		decl = decl "\n" $0
		next
	}
	decl = decl ";"
	inlined[declared()]
	state = "body"
	next
}
state == "body" {
	if ($0 ~ /^}/)
		state = "out"
	next
}
state == "type" || state == "call" {
	add($0)
	next
}
/^#define VB_[A-Z0-9_]+[ \t]/ {
	constants[++n_constants] = $2
	constant[$2] = $0
	comment = "" # it was theirs
}
/^#/ {
	state = $0 ~ /\\$/ ? "macro" : "out"
	next
}
/^[ \t]*$/ {
	if (comment != "" && group == "") {
		# Nothing below it: the header's own words, or those for what follows.
		if (heads == 1)
			head[header] = comment
		else if (heads > 1) {
			common = comment
			below = 0
		}
	} else if (below)
		common = ""
	comment = group = ""
	next
}
/^\/\*/ {
	comment = ""
	group = ""
	state = "comment"
	if ($0 !~ /SPDX/)
		heads++
	read_comment(substr($0, 3))
	next
}
/^static inline / {
	state = "inline"
	decl = substr($0, length("static inline ") + 1)
	next
}
/^extern "C"/ || /^}/ {
	next
}
{
	decl = ""
	state = $0 ~ /^(struct|enum|union) [a-z_0-9]+ \{$/ ? "type" : "call"
	add($0)
}

function read_comment(line) {
	if (line ~ /\*\//)
		state = "out"
	sub(/[ \t]*\*\/.*$/, "", line)
	# " * text", and what stands behind the opening.
	sub(/^ \* ?/, "", line)
	sub(/^ \*$/, "", line)
	sub(/^ /, line ~ /^  / ? " " : "", line)
	if (line ~ /SPDX/)
		return
	comment = comment == "" ? line : comment "\n" line
}

function add(line) {
	decl = decl == "" ? line : decl "\n" line
	if (state == "type" ? line ~ /^};/ : line ~ /;[ \t]*$/)
		declared()
}

# A whole declaration: a type, or a function, whose name it returns.
function declared(    name, first) {
	first = group == ""
	if (first)
		group = header "#" FNR
	if (state == "type" || decl ~ /^typedef/) {
		if (match(decl, /\(\*vb_[a-z0-9_]+\)/))
			name = substr(decl, RSTART + 2, RLENGTH - 3)
		else if (match(decl, /^(struct|enum|union) [a-z0-9_]+/))
			name = substr(decl, RSTART, RLENGTH)
		else
			name = ""
		if (name != "") {
			type[name] = decl
			type_group[name] = group
			type_comment[name] = comment
		}
	} else if (match(decl, /vb_[a-z0-9_]+\(/)) {
		name = substr(decl, RSTART, RLENGTH - 1)
		calls[++n_calls] = name
		known[name] = 1
		proto[name] = decl
		of_header[name] = header
		group_of[name] = group
		text[group] = without_threads(comment, group)
		shared[group] = common
		below = 1
		members[group] = members[group] == "" ? name : members[group] " " name
	}
	state = "out"
	return name
}

# What is said of threads is kept apart from the rest.
function without_threads(s, group,    lines, n, i, out, name) {
	n = split(s, lines, "\n")
	out = ""
	for (i = 1; i <= n; i++) {
		if (!match(lines[i], /^Threads( of vb_[a-z0-9_]+)?: .*\.$/)) {
			out = out == "" ? lines[i] : out "\n" lines[i]
			continue
		}
		name = lines[i]
		sub(/:.*/, "", name)
		sub(/^Threads( of )?/, "", name)
		threads[group, name] = substr(lines[i], index(lines[i], ":") + 2)
		sub(/\.$/, "", threads[group, name])
	}
	sub(/\n+$/, "", out)
	return out
}

# Of a function; "" if nothing is said.
function threads_of(name,    g) {
	g = group_of[name]
	return (g, name) in threads ? threads[g, name] : threads[g, ""]
}

# ---- writing ----

# Nothing of it is markup but names.
function quoted(s,    out, i, c) {
	out = ""
	for (i = 1; i <= length(s); i++) {
		c = substr(s, i, 1)
		if (index("\\_*#`|+[]<>~", c) || (i == 1 && index("-.!:'", c)))
			out = out "\\"
		out = out c
	}
	return out
}

function inline(s,    out, word) {
	out = ""
	while (match(s, /`[^`]*`|\*[A-Za-z][A-Za-z -]*\*|vb_[a-z0-9_]+(\(\))?/)) {
		word = substr(s, RSTART, RLENGTH)
		out = out quoted(substr(s, 1, RSTART - 1))
		s = substr(s, RSTART + RLENGTH)
		if (word ~ /^`/)
			out = out bold quoted(substr(word, 2, length(word) - 2)) bold
		else if (word ~ /^\*/)
			out = out "_" quoted(substr(word, 2, length(word) - 2)) "_"
		else {
			sub(/\(\)$/, "", word)
			out = out (word in known ? bold quoted(word) bold : quoted(word))
		}
	}
	return out quoted(s)
}

# Ends the paragraph, item or block that is being written.
function end_of(what) {
	if (what == "code")
		print "```\n"
	else if (trim(para) != "")
		print (what == "item" ? "\t" : "") inline(trim(para)) "\n"
	else if (what == "item")
		print ""
	para = ""
}

# A page has other tab stops.
function untabbed(s,    i) {
	while ((i = index(s, "\t")) > 0)
		s = substr(s, 1, i - 1) sprintf("%" (8 - (i - 1) % 8) "s", "") substr(s, i + 1)
	return s
}

function item_begins(line) {
	return line ~ /^   ?[^ ]/ && line !~ /^    /
}

# A comment's text; the first error opens its section.
function body(s, errors,    lines, n, i, line, in_what, term) {
	n = split(s, lines, "\n")
	in_what = para = ""
	for (i = 1; i <= n; i++) {
		line = lines[i]
		if (line ~ /^\t/) {
			if (in_what != "code") {
				end_of(in_what)
				print "```"
				in_what = "code"
			}
			print untabbed(substr(line, 2))
			continue
		}
		if (line == "" && in_what == "code" && lines[i + 1] ~ /^\t/) {
			print ""
			continue
		}
		if (line == "") {
			end_of(in_what)
			in_what = ""
			continue
		}
		if (item_begins(line)) {
			end_of(in_what)
			line = trim(line)
			if (errors && line ~ /^(0|-)/) {
				print "# ERRORS\n"
				errors = 0
			}
			if (!match(line, /^(-[A-Z0-9_]+(, -[A-Z0-9_]+)*|[^ ]+)/))
				RLENGTH = length(line)
			term = substr(line, 1, RLENGTH)
			print bold quoted(term) bold
			para = trim(substr(line, RLENGTH + 1))
			in_what = "item"
			continue
		}
		if (in_what == "code" || (in_what == "item" && line !~ /^    /)) {
			end_of(in_what)
			in_what = ""
		}
		if (in_what == "")
			in_what = "text"
		para = para " " trim(line)
	}
	end_of(in_what)
}

# What stands in NAME: the first sentence, less what explains it.
function first_words(s,    t, i) {
	t = s
	gsub(/[ \t\n]+/, " ", t)
	t = trim(t)
	i = match(t, /[.:]( |$)| \(/)
	if (i > 1)
		t = substr(t, 1, i - 1)
	gsub(/`/, "", t)
	t = trim(t)
	return tolower(substr(t, 1, 1)) substr(t, 2)
}

function literal(s,    lines, n, i) {
	gsub(/\\/, "&&", s)
	n = split(s, lines, "\n")
	print "```"
	for (i = 1; i <= n; i++)
		print untabbed(lines[i])
	print "```\n"
}

# The constants of which there is talk.
function constants_of(s,    i, all) {
	all = ""
	for (i = 1; i <= n_constants; i++)
		if (match(s, "(^|[^A-Z0-9_])" constants[i] "([^A-Z0-9_]|$)"))
			all = all (all == "" ? "" : "\n") constant[constants[i]]
	return all
}

function as_comment(s) {
	if (s !~ /\n/)
		return "/* " trim(s) " */"
	s = "\n" s
	sub(/\n+$/, "", s)
	gsub(/\n/, "\n * ", s)
	gsub(/ +\n/, "\n", s)
	return "/*" s "\n */"
}

# Puts the types of a declaration, and theirs, into `types`.
function types_of(decl, mine,    name, rest) {
	rest = decl
	gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", rest)
	while (match(rest, /(struct|enum|union) [a-z0-9_]+|vb_[a-z0-9_]+/)) {
		name = substr(rest, RSTART, RLENGTH)
		rest = substr(rest, RSTART + RLENGTH)
		if (!(name in type) || name in done)
			continue
		done[name] = 1
		# What is said of a function, too, is on its page.
		if (type_group[name] != mine && type_comment[name] != "" && !(type_group[name] in members))
			types = types as_comment(type_comment[name]) "\n"
		types = types type[name] "\n\n"
		types_of(type[name], mine)
	}
}

function has_types(decl,    name, rest) {
	rest = decl
	while (match(rest, /(struct|enum|union) [a-z0-9_]+|vb_[a-z0-9_]+/)) {
		name = substr(rest, RSTART, RLENGTH)
		rest = substr(rest, RSTART + RLENGTH)
		if (name in type)
			return 1
	}
	return 0
}

function see_also(name, s,    list, i) {
	list = ""
	for (i = 1; i <= n_calls; i++)
		if (calls[i] != name && group_of[calls[i]] != group_of[name] &&
		    match(s, "(^|[^a-z0-9_])" calls[i] "([^a-z0-9_]|$)"))
			list = list bold quoted(calls[i]) bold "(3), "
	return list bold "libverbena" bold "(7)"
}

# The examples that call it; `called` is "FUNCTION FILE" again and again.
function examples_of(name,    word, n, i, list) {
	n = split(called, word, " ")
	list = ""
	for (i = 1; i < n; i += 2)
		if (word[i] == name)
			list = list (list == "" ? "" : ", ") "_" quoted(word[i + 1]) "_"
	return list
}

# What the words of verbena/fabric.h, "Threads", mean.
function in_full(words, decl,    main, more, whose) {
	main = words
	more = ""
	if (match(words, /[;] /)) {
		main = substr(words, 1, RSTART - 1)
		more = "; " substr(words, RSTART + 2)
	}
	if (main == "any")
		main = "any thread, several at a time, with the same objects"
	else if (main == "any, alone")
		main = "any thread, while no other call with that object is under way"
	else if (main ~ /^any, one at a time for an? [a-z]+$/)
		main = "any thread, but not two at a time for the same " substr(main, match(main, /[a-z]+$/))
	else if (match(main, /^the [a-z]+'s/)) {
		whose = substr(main, 5, RLENGTH - 6)
		main = "only the thread that has opened the " whose substr(main, RLENGTH + 1) \
			(main ~ /(client|ring)'s/ ? ", or, where that is on a host (vb_host_open), any" : "") \
			".  From another one, and from a forked child, it does nothing" \
			(decl ~ /^int / ? " and returns -VB_EFOREIGN" : ", and the log says so")
	}
	return main more "."
}

# All of a group that are as one are told together.
function page_threads(m, n,    i, k, rest, words, names) {
	for (i = 1; i <= n; i++)
		rest[i] = 1
	print "# THREADS\n"
	for (i = 1; i <= n; i++) {
		if (!(i in rest))
			continue
		words = in_full(threads_of(m[i]), proto[m[i]])
		names = ""
		for (k = i; k <= n; k++)
			if (in_full(threads_of(m[k]), proto[m[k]]) == words) {
				names = names (names == "" ? "" : ", ") m[k]
				delete rest[k]
			}
		print inline(names ": " words) "\n"
	}
}

function page(name,    g, all, m, n, i, names) {
	g = group_of[name]
	n = split(members[g], m, " ")
	names = name
	for (i = 1; i <= n; i++)
		if (m[i] != name)
			names = names ", " m[i]
	print name "(3)\n"
	print "# NAME\n"
	print names " - " inline(first_words(text[g])) "\n"
	print "# SYNOPSIS\n"
	all = "#include <verbena/" of_header[name] ">\n"
	for (i = 1; i <= n; i++)
		all = all "\n" proto[m[i]]
	literal(all)
	print "# DESCRIPTION\n"
	body(text[g], 1)
	if (shared[g] != "") {
		print "# ALL CALLS OF THIS KIND\n"
		body(shared[g], 0)
	}
	page_threads(m, n)
	all = ""
	for (i = 1; i <= n; i++)
		all = all "\n" proto[m[i]]
	all = all "\n" text[g]
	types = ""
	if (has_types(all)) {
		print "# TYPES\n"
		split("", done)
		types_of(all, g)
		sub(/\n+$/, "", types)
		literal(types)
	}
	all = constants_of(all "\n" shared[g] "\n" types)
	if (all != "") {
		print "# CONSTANTS\n"
		literal(all)
	}
	print "# NOTES\n"
	print inline(everywhere) bold "libverbena" bold "(7).\n"
	all = examples_of(name)
	if (all != "")
		print "Examples that call it (in _share/doc/verbena/examples_): " all ".\n"
	print "# SEE ALSO\n"
	print see_also(name, text[g] "\n" shared[g])
}

function about(    i, k, h) {
	for (i = 1; i <= n_template; i++) {
		if (template[i] ~ /^@HEAD [a-z]+\.h@$/) {
			h = substr(template[i], 7, length(template[i]) - 7)
			if (!(h in head)) {
				print "man-calls.awk: there is no " h > "/dev/stderr"
				exit 1
			}
			body(head[h], 0)
			for (k = 1; k <= n_calls; k++)
				if (of_header[calls[k]] == h)
					print bold quoted(calls[k]) bold "(3)\n\t" inline(first_words(text[group_of[calls[k]]])) "\n"
		} else
			print template[i]
	}
}

END {
	if (what == "list")
		for (i = 1; i <= n_calls; i++)
			print calls[i]
	else if (what == "threads")
		for (i = 1; i <= n_calls; i++) {
			if (!(calls[i] in inlined))
				print calls[i] "\t" threads_of(calls[i])
		}
	else if (what == "about")
		about()
	else
		for (i = 1; i <= n_calls; i++) {
			print "\f" calls[i]
			page(calls[i])
		}
}
