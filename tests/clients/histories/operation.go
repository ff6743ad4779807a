package main

import "math"

// Actions of operations.
const (
	create    = "create"
	read      = "read"
	update    = "update"
	remove    = "delete"
	useSecret = "use"  // a token reads itself by its secret
	list      = "list" // becomes a read of each record in its checks
)

// Outcomes of operations.
const (
	done     = "done"
	absent   = "absent"   // the record is not there, or not with the wanted identity
	conflict = "conflict" // the name or id is in use, or the namespace is marked for deletion
	unknown  = "unknown"  // the change may have been made, now or later
	failed   = "failed"   // certainly nothing was changed, and nothing was read
)

// never is the return time of an operation that is still open.
const never = int64(math.MaxInt64)

// operation is one request and its response. Times are nanoseconds of a monotonic clock since the start.
type operation struct {
	Client  int    `json:"client"`
	Server  int    `json:"server"`
	Kind    string `json:"kind"`
	Record  string `json:"record"`
	Action  string `json:"action"`
	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
	Outcome string `json:"outcome"`
	Status  int    `json:"status,omitempty"`
	Error   string `json:"error,omitempty"`

	// Target is the creator of the record that an update, a deletion or a use means; empty: any.
	Target string `json:"target,omitempty"`
	// Written is the value of a create or update: unique in the run. That of a create is the creator too.
	Written string `json:"written,omitempty"`
	// Found is the record that a read returned.
	Found *version `json:"found,omitempty"`
	// Modify is the ModifyIndex of the response to a create or update.
	Modify uint64 `json:"modify,omitempty"`

	// Path of a read, without the parameters below.
	Path  string `json:"path,omitempty"`
	Stale bool   `json:"stale,omitempty"`
	// Since is the index of a blocking query, Wait its longest wait in nanoseconds; Index is that of the response.
	Since uint64 `json:"since,omitempty"`
	Wait  int64  `json:"wait,omitempty"`
	Index uint64 `json:"index,omitempty"`
	// Records are those that a list returned, by name.
	Records map[string]version `json:"records,omitempty"`
}

// version is a record as a response shows it.
type version struct {
	Creator string `json:"creator,omitempty"` // the value of its create; empty where the record does not show it
	Value   string `json:"value"`
	Modify  uint64 `json:"modify"`
	Marked  bool   `json:"marked,omitempty"` // a namespace that is marked for deletion
}

func (one *operation) isWrite() bool {
	return one.Action == create || one.Action == update || one.Action == remove
}

// fault is something that was done to the servers. The checks of times allow for its duration.
type fault struct {
	Name  string `json:"name"`
	Begin int64  `json:"begin"`
	End   int64  `json:"end"`
}

// anomaly is a promise that was broken, with the operations that show it.
type anomaly struct {
	Check   string      `json:"check"`
	Text    string      `json:"text"`
	History []operation `json:"history"`
}
