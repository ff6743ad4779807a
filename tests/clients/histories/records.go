package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// kind is a kind of record, and how the API names it.
type kind struct {
	name string
	// path of a create; one of a record follows it.
	path string
	// byName is the path of a read by name, where the id is not known before.
	byName string
	list   string
	// share of the operations, of all shares.
	share int
}

var kinds = []kind{
	{name: "policy", path: "/v1/acl/policy", byName: "/v1/acl/policy/name/", list: "/v1/acl/policies", share: 30},
	{name: "role", path: "/v1/acl/role", byName: "/v1/acl/role/name/", list: "/v1/acl/roles", share: 25},
	{name: "token", path: "/v1/acl/token", list: "/v1/acl/tokens", share: 30},
	{name: "namespace", path: "/v1/namespace", list: "/v1/namespaces", share: 15},
}

// hasServerID is true if the server chooses the id of a new record.
func (its kind) hasServerID() bool { return its.byName != "" }

// body of a create or update. The description has the creator and the value.
func (its kind) body(record, creator, value string, creates bool) []byte {
	fields := map[string]string{"Description": creator + "|" + value}
	if its.name != "token" {
		fields["Name"] = record
	} else if creates {
		fields["AccessorID"], fields["SecretID"] = uuid(record), uuid(creator)
	}
	body, _ := json.Marshal(fields)
	return body
}

// shown is a record in a response, of any kind.
type shown struct {
	ID, Name, AccessorID, SecretID, Description, DeletedAt string
	ModifyIndex                                            uint64
}

// version of a record. A namespace does not keep its creator over an update by a client that does not know it.
func (its kind) version(found shown, known *registry) version {
	creator, value, _ := strings.Cut(found.Description, "|")
	if its.name == "token" {
		creator = known.creatorOfSecret(found.SecretID)
	} else if its.name == "namespace" {
		creator = ""
	}
	return version{Creator: creator, Value: value, Modify: found.ModifyIndex, Marked: found.DeletedAt != ""}
}

// record returns the name of a record by which its history is kept.
func (its kind) record(found shown, known *registry) string {
	if its.name == "token" {
		return known.accessorName(found.AccessorID)
	}
	return found.Name
}

// uuid returns an id that is the same for the same text.
func uuid(text string) string {
	hex := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	return hex[:8] + "-" + hex[8:12] + "-4" + hex[13:16] + "-8" + hex[17:20] + "-" + hex[20:32]
}

// registry has the ids that clients have chosen or seen, for all clients.
type registry struct {
	mutex     sync.Mutex
	secrets   map[string]string // creator by secret
	accessors map[string]string // record by accessor
	creators  map[string]string // creator by the id that the server chose
	ids       map[string]string // the reverse of it
	anomalies []anomaly
}

func newRegistry() *registry {
	return &registry{
		secrets: map[string]string{}, accessors: map[string]string{}, creators: map[string]string{}, ids: map[string]string{},
	}
}

func (known *registry) addToken(record, creator string) {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	known.accessors[uuid(record)], known.secrets[uuid(creator)] = record, creator
}

func (known *registry) creatorOfSecret(secret string) string {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	return known.secrets[secret]
}

func (known *registry) accessorName(accessor string) string {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	return known.accessors[accessor]
}

// addID records that the create `creator` has made the record with this id. One create makes one record.
func (known *registry) addID(creator, id string, one operation) {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	if creator == "" || id == "" {
		return
	}
	its, isKnown := known.creators[id]
	other, isMade := known.ids[creator]
	if isKnown && its != creator || isMade && other != id {
		text := fmt.Sprintf("the create %s has made %s, and %s came from %s", creator, id, other, its)
		known.anomalies = append(known.anomalies, anomaly{"one record for a create", text, []operation{one}})
	}
	known.creators[id], known.ids[creator] = creator, id
}
