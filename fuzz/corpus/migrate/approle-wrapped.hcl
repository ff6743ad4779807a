exit_after_auth = true

vault {
  address = "https://127.0.0.1:8200"
}

auto_auth {
  enable_reauth_on_new_credentials = true
  method {
    type     = "approle"
    wrap_ttl = "10m"
    config   = {
      role_id_file_path   = "/etc/agent/role-id"
      secret_id_file_path = "/etc/agent/secret-id"
      secret_id_response_wrapping_path = "auth/approle/role/batch/secret-id"
    }
  }
  sinks {
    sink {
      type = "file"
      config = { path = "/never/written" }
    }
  }
  sink {
    type     = "file"
    dh_type  = "curve25519"
    dh_path  = "/etc/agent/public.json"
    aad      = "batch"
    config   = {
      path = "/run/agent/token"
    }
  }
}
