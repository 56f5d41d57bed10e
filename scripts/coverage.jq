# SPDX-License-Identifier: Apache-2.0
# Of gcovr's summary by file, a line for each room: room, lines in per cent and of how many, branches
# likewise.  What needs an RDMA card is a room of its own.
def room: split("/") | if .[1:3] == ["fabric", "verbs"] then "fabric/verbs" else .[1] end;
def per_cent(part; whole): if whole == 0 then 100 else part * 1000 / whole | floor / 10 end;

.files | group_by(.filename | room)[] |
	(map(.line_covered) | add) as $lines | (map(.line_total) | add) as $of |
	(map(.branch_covered) | add) as $branches | (map(.branch_total) | add) as $of_branches |
	[(.[0].filename | room), per_cent($lines; $of), $of, per_cent($branches; $of_branches), $of_branches] | @tsv
