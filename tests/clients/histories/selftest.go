package main

import (
	"fmt"
	"os"
	"time"
)

// testChecks verifies that each check finds its error, and nothing in a correct history.
func testChecks() {
	at := func(call, end int64, one operation) operation {
		one.Call, one.Return, one.Kind, one.Record = call*int64(time.Second), end*int64(time.Second), "policy", "policy-0-0"
		if one.Outcome == "" {
			one.Outcome = done
		}
		return one
	}
	made := operation{Action: create, Written: "a", Modify: 5}
	second := operation{Action: update, Target: "a", Written: "b", Modify: 7}
	lostWrite := operation{Action: update, Target: "a", Written: "b", Outcome: unknown}
	old := operation{Action: read, Path: "/p", Found: &version{Creator: "a", Value: "a", Modify: 5}, Index: 5}
	newer := operation{Action: read, Path: "/p", Found: &version{Creator: "a", Value: "b", Modify: 7}, Index: 7}
	stranger := operation{Action: read, Path: "/p", Stale: true, Found: &version{Creator: "a", Value: "x", Modify: 6}, Index: 6}
	gone := operation{Action: remove, Target: "a"}
	notThere := operation{Action: read, Path: "/p", Outcome: absent, Index: 7}
	waiting := operation{Action: read, Path: "/p", Since: 5, Wait: int64(time.Minute), Found: newer.Found, Index: 7}
	forbidden := operation{Action: read, Path: "/p", Outcome: failed, Status: 403}
	stopped := []fault{{"stop", 6 * int64(time.Second), 25 * int64(time.Second)}}
	cases := []struct {
		wanted  string
		history []operation
		faults  []fault
	}{
		{"", []operation{at(0, 1, made), at(2, 3, old), at(4, 5, second), at(6, 7, newer)}, nil},
		{"", []operation{at(0, 1, made), at(2, 5, second), at(3, 4, old), at(3, 4, newer)}, nil},
		{"", []operation{at(0, 1, made), at(2, 3, lostWrite), at(4, 5, old), at(6, 7, newer)}, nil},
		{"", []operation{at(0, 1, made), at(2, 9, waiting), at(4, 5, second)}, nil},
		{"", []operation{at(0, 1, made), at(2, 30, waiting), at(4, 5, second)}, stopped},
		// An acknowledged change is lost.
		{"linearizability", []operation{at(0, 1, made), at(2, 3, second), at(4, 5, old)}, nil},
		{"linearizability", []operation{at(0, 1, made), at(2, 3, gone), at(4, 5, old)}, nil},
		{"linearizability", []operation{at(0, 1, made), at(2, 3, notThere)}, nil},
		// A change of unknown outcome is visible, and then is not.
		{"linearizability", []operation{at(0, 1, made), at(2, 3, lostWrite), at(4, 5, newer), at(6, 7, old)}, nil},
		{"read your writes", []operation{at(0, 1, made), at(2, 3, second), at(4, 5, old)}, nil},
		{"monotone indexes", []operation{at(0, 1, made), at(2, 3, notThere), at(4, 5, old)}, nil},
		{"index of a read", []operation{at(0, 1, made), at(2, 3, second), at(4, 5, old)}, nil},
		{"wake-ups", []operation{at(0, 1, made), at(2, 30, waiting), at(4, 5, second)}, nil},
		{"wake-ups", []operation{at(0, 1, made), at(2, 90, waiting)}, nil},
		{"stale reads", []operation{at(0, 1, made), at(2, 3, stranger)}, nil},
		{"responses", []operation{at(0, 1, made), at(2, 3, forbidden)}, nil},
	}
	isWrong := false
	for place, one := range cases {
		isFound := one.wanted == ""
		for _, anomaly := range judge(one.history, one.faults).Anomalies {
			isFound = isFound && one.wanted != "" || anomaly.Check == one.wanted
		}
		if !isFound {
			fmt.Printf("self-test %d: %q is not found, or something else is\n", place, one.wanted)
			isWrong = true
		}
	}
	if isWrong {
		os.Exit(1)
	}
	fmt.Println("self-test: right")
}
