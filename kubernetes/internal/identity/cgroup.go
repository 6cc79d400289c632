package identity

import (
	"fmt"
	"strings"
)

// maxPath is how long a control group's path may be.
const maxPath = 1024

// cgroup is the path of a control group as the kernel tells it, from what a runtime calls it: a path, or
// SLICE:PREFIX:NAME where systemd makes the groups.
func cgroup(of string) (string, error) {
	path := of
	if slice, rest, systemd := strings.Cut(of, ":"); systemd {
		prefix, name, found := strings.Cut(rest, ":")
		if !found || name == "" || strings.ContainsAny(name, ":/") {
			return "", fmt.Errorf("%.100q is not a control group", of)
		}
		unit := name
		// A slice has no prefix.
		if !strings.HasSuffix(name, ".slice") {
			unit = prefix + "-" + name + ".scope"
			if prefix == "" {
				unit = name + ".scope"
			}
		}
		folder, err := sliceFolder(slice)
		if err != nil {
			return "", err
		}
		path = folder + "/" + unit
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if len(path) > maxPath || strings.Count(path, "/") < 2 {
		return "", fmt.Errorf("%.100q is not a control group of a container", of)
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("%.100q is not a control group of a container", of)
		}
	}
	return path, nil
}

// sliceFolder is where systemd puts a slice: a-b.slice lies in a.slice.
func sliceFolder(slice string) (string, error) {
	if slice == "" {
		slice = "system.slice"
	}
	if slice == "-.slice" {
		return "", nil
	}
	name, is := strings.CutSuffix(slice, ".slice")
	if !is || name == "" || strings.Contains(slice, "/") || len(slice) > maxPath {
		return "", fmt.Errorf("%.100q is not a slice", slice)
	}
	var folder, upTo strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		if part == "" {
			return "", fmt.Errorf("%.100q is not a slice", slice)
		}
		if upTo.Len() > 0 {
			upTo.WriteByte('-')
		}
		upTo.WriteString(part)
		folder.WriteString("/" + upTo.String() + ".slice")
		if folder.Len() > maxPath {
			return "", fmt.Errorf("%.100q is not a slice", slice)
		}
	}
	return folder.String(), nil
}
