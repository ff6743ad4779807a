//! Calls of AWS-LC that read and write encrypted key files, which have no safe binding.

use std::ffi::{CStr, c_int, c_long};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Content of a PKCS#12 file.
pub struct Pkcs12 {
    /// The private key: PKCS#8, DER.
    pub key: Vec<u8>,
    /// The certificates, DER, the key's own first.
    pub certificates: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Pkcs12 {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pkcs12").field("certificates", &self.certificates.len()).finish_non_exhaustive()
    }
}

/// Reads a PKCS#12 file with this password. An empty password opens a file without one.
pub fn read_pkcs12(file: &[u8], password: &CStr) -> Result<Pkcs12, KeyFileError> {
    let mut input = MaybeUninit::<aws_lc_sys::CBS>::uninit();
    let mut key = PrivateKey(null_mut());
    // SAFETY: the constructor takes nothing; the stack is checked, owned by its guard and holds only certificates.
    let certificates = CertificateStack(unsafe { aws_lc_sys::OPENSSL_sk_new_null() });
    if certificates.0.is_null() {
        return Err(KeyFileError::Unreadable);
    }
    // SAFETY: `input` is initialised before it is used and borrows `file`, which outlives the call; the other pointers are
    // live, and what the call puts there is owned by their guards. The error queue belongs to this thread.
    let (outcome, wrong_password) = unsafe {
        aws_lc_sys::ERR_clear_error();
        aws_lc_sys::CBS_init(input.as_mut_ptr(), file.as_ptr(), file.len());
        let outcome = aws_lc_sys::PKCS12_get_key_and_certs(
            &raw mut key.0,
            certificates.0.cast(),
            input.as_mut_ptr(),
            password.as_ptr(),
        );
        let error = aws_lc_sys::ERR_peek_last_error();
        aws_lc_sys::ERR_clear_error();
        // The library in the highest byte, the reason in the lowest twelve bits (`ERR_GET_LIB`, `ERR_GET_REASON`).
        let library = i64::from(error >> 24);
        let reason = i64::from(error & 0xfff);
        let mac_failure = (i64::from(aws_lc_sys::ERR_LIB_PKCS12), i64::from(aws_lc_sys::PKCS12_R_MAC_VERIFY_FAILURE));
        (outcome, (library, reason) == mac_failure)
    };
    if outcome != 1 {
        return Err(if wrong_password { KeyFileError::WrongPassword } else { KeyFileError::Unreadable });
    }
    let mut list = certificates.to_der(&key).ok_or(KeyFileError::Unreadable)?;
    // The sort is stable: the rest of the chain stays in the order of the file.
    list.sort_by_key(|(of_key, _)| !of_key);
    let key = key.to_pkcs8().ok_or(KeyFileError::Unreadable)?;
    Ok(Pkcs12 { key, certificates: list.into_iter().map(|(_, der)| der).collect() })
}

/// Writes a PKCS#12 file (RFC 7292) with a private key (DER: PKCS#8, PKCS#1 or SEC 1) and certificates (DER), the key's own first.
/// `name` is its friendly name, the alias of Java.
///
/// Both are encrypted with triple DES, which old releases of Java and Windows read too, and the MAC is of SHA-256.
///
/// # Errors
/// The key or a certificate is damaged, or they do not belong together.
pub fn write_pkcs12(
    key: &[u8],
    certificates: &[Vec<u8>],
    name: &CStr,
    password: &CStr,
) -> Result<Vec<u8>, KeyFileError> {
    let file = create_pkcs12(key, certificates, name, password);
    // SAFETY: the error queue belongs to this thread.
    unsafe { aws_lc_sys::ERR_clear_error() };
    file.ok_or(KeyFileError::Unreadable)
}

fn create_pkcs12(key: &[u8], certificates: &[Vec<u8>], name: &CStr, password: &CStr) -> Option<Vec<u8>> {
    let (leaf, authorities) = certificates.split_first()?;
    let key_length = c_long::try_from(key.len()).ok()?;
    let mut start = key.as_ptr();
    // SAFETY: the pointer and the length are those of `key`, which outlives the call.
    let key = PrivateKey(unsafe { aws_lc_sys::d2i_AutoPrivateKey(null_mut(), &raw mut start, key_length) });
    // SAFETY: the constructors take nothing; what the stacks own is freed by their guards.
    let (own, chain) = unsafe {
        (CertificateStack(aws_lc_sys::OPENSSL_sk_new_null()), CertificateStack(aws_lc_sys::OPENSSL_sk_new_null()))
    };
    own.push(leaf)?;
    for authority in authorities {
        chain.push(authority)?;
    }
    if key.0.is_null() {
        return None;
    }
    // SAFETY: all pointers are live and owned by their guards during the calls, which copy what they keep; the strings end with NUL.
    // The leaf is the only item of its stack.
    let file = Pkcs12File(unsafe {
        aws_lc_sys::PKCS12_create(
            password.as_ptr(),
            name.as_ptr(),
            key.0,
            aws_lc_sys::OPENSSL_sk_value(own.0, 0).cast(),
            chain.0.cast(),
            aws_lc_sys::NID_pbe_WithSHA1And3_Key_TripleDES_CBC,
            aws_lc_sys::NID_pbe_WithSHA1And3_Key_TripleDES_CBC,
            PKCS12_ITERATIONS,
            PKCS12_ITERATIONS,
            0,
        )
    });
    if file.0.is_null() {
        return None;
    }
    // SAFETY: the file is live. Without a salt the library makes one; -1 stands for a password that ends with NUL. With a null output
    // pointer the encoder only returns the length; with a buffer of that length it writes as much.
    unsafe {
        let sha256 = aws_lc_sys::EVP_sha256();
        let is_sealed =
            aws_lc_sys::PKCS12_set_mac(file.0, password.as_ptr(), -1, null_mut(), 0, PKCS12_ITERATIONS, sha256) == 1;
        let length = usize::try_from(aws_lc_sys::i2d_PKCS12(file.0, null_mut())).ok().filter(|_| is_sealed)?;
        let mut der = vec![0_u8; length];
        let mut end = der.as_mut_ptr();
        let written = aws_lc_sys::i2d_PKCS12(file.0, &raw mut end);
        (usize::try_from(written) == Ok(length)).then_some(der)
    }
}

/// Iterations of key derivation, as Java's `keytool` has them.
const PKCS12_ITERATIONS: c_int = 10_000;

/// Reads the first private key of a PEM text, encrypted with this password: PKCS#8, or the older form whose head says
/// `Proc-Type: 4,ENCRYPTED`. Returns the key as PKCS#8 (DER).
///
/// # Errors
/// The password does not open the key. A damaged key looks the same.
pub fn decrypt_pem_key(pem: &[u8], password: &CStr) -> Result<Vec<u8>, KeyFileError> {
    let length = isize::try_from(pem.len()).map_err(|_| KeyFileError::Unreadable)?;
    // SAFETY: the memory BIO borrows `pem`, which outlives it, and is freed here. Without a callback the library reads the
    // password from the last argument, a C string, and writes nothing there.
    let key = unsafe {
        let source = aws_lc_sys::BIO_new_mem_buf(pem.as_ptr().cast(), length);
        if source.is_null() {
            return Err(KeyFileError::Unreadable);
        }
        let password = password.as_ptr().cast_mut().cast();
        let key = aws_lc_sys::PEM_read_bio_PrivateKey(source, null_mut(), None, password);
        aws_lc_sys::BIO_free(source);
        aws_lc_sys::ERR_clear_error();
        PrivateKey(key)
    };
    if key.0.is_null() { Err(KeyFileError::WrongPassword) } else { key.to_pkcs8().ok_or(KeyFileError::Unreadable) }
}

/// A key file that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFileError {
    /// The password does not open it.
    WrongPassword,
    /// It is damaged, or holds no key.
    Unreadable,
}

/// Owner of a private key of the C library; may be null.
struct PrivateKey(*mut aws_lc_sys::EVP_PKEY);

impl PrivateKey {
    /// The key as PKCS#8 (DER); `None` without a key.
    fn to_pkcs8(&self) -> Option<Vec<u8>> {
        let mut buffer = MaybeUninit::<aws_lc_sys::CBB>::uninit();
        let mut bytes = null_mut::<u8>();
        let mut length = 0;
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the buffer is initialised before its other use and released on both ways out; on success the library gives
        // `length` bytes at `bytes`, which are copied and freed (the library zeroes what it frees).
        unsafe {
            if aws_lc_sys::CBB_init(buffer.as_mut_ptr(), 0) != 1 {
                return None;
            }
            let written = aws_lc_sys::EVP_marshal_private_key(buffer.as_mut_ptr(), self.0) == 1
                && aws_lc_sys::CBB_finish(buffer.as_mut_ptr(), &raw mut bytes, &raw mut length) == 1;
            if !written {
                aws_lc_sys::CBB_cleanup(buffer.as_mut_ptr());
                aws_lc_sys::ERR_clear_error();
                return None;
            }
            let copy = std::slice::from_raw_parts(bytes, length).to_vec();
            aws_lc_sys::OPENSSL_free(bytes.cast());
            Some(copy)
        }
    }
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        // SAFETY: it is owned only here; null is allowed.
        unsafe { aws_lc_sys::EVP_PKEY_free(self.0) };
    }
}

/// Owner of a PKCS#12 file of the C library; may be null.
struct Pkcs12File(*mut aws_lc_sys::PKCS12);

impl Drop for Pkcs12File {
    fn drop(&mut self) {
        // SAFETY: it is owned only here; null is allowed.
        unsafe { aws_lc_sys::PKCS12_free(self.0) };
    }
}

/// Owner of a stack of certificates of the C library.
struct CertificateStack(*mut aws_lc_sys::OPENSSL_STACK);

impl CertificateStack {
    /// Adds a certificate (DER); `None` if it cannot be read.
    fn push(&self, der: &[u8]) -> Option<()> {
        let length = c_long::try_from(der.len()).ok()?;
        let mut start = der.as_ptr();
        // SAFETY: the pointer and the length are those of `der`, which outlives the call. A certificate that the stack does not take
        // is freed here.
        unsafe {
            let certificate = aws_lc_sys::d2i_X509(null_mut(), &raw mut start, length);
            if certificate.is_null() {
                return None;
            }
            if aws_lc_sys::OPENSSL_sk_push(self.0, certificate.cast()) == 0 {
                aws_lc_sys::X509_free(certificate);
                return None;
            }
        }
        Some(())
    }

    /// Each certificate (DER), and if it is that of the key.
    fn to_der(&self, key: &PrivateKey) -> Option<Vec<(bool, Vec<u8>)>> {
        // SAFETY: the stack is live and holds only certificates. With a null output pointer the encoder only returns the
        // length; with a buffer of that length it writes as much.
        unsafe {
            (0..aws_lc_sys::OPENSSL_sk_num(self.0))
                .map(|index| {
                    let certificate: *mut aws_lc_sys::X509 = aws_lc_sys::OPENSSL_sk_value(self.0, index).cast();
                    let length = usize::try_from(aws_lc_sys::i2d_X509(certificate, null_mut())).ok()?;
                    let mut der = vec![0_u8; length];
                    let mut end = der.as_mut_ptr();
                    let written = aws_lc_sys::i2d_X509(certificate, &raw mut end);
                    let of_key = !key.0.is_null() && aws_lc_sys::X509_check_private_key(certificate, key.0) == 1;
                    aws_lc_sys::ERR_clear_error();
                    (usize::try_from(written) == Ok(length)).then_some((of_key, der))
                })
                .collect()
        }
    }
}

impl Drop for CertificateStack {
    fn drop(&mut self) {
        // SAFETY: the stack and the certificates on it are owned only here; popping an empty or null stack gives null.
        unsafe {
            loop {
                let certificate: *mut aws_lc_sys::X509 = aws_lc_sys::OPENSSL_sk_pop(self.0).cast();
                if certificate.is_null() {
                    break;
                }
                aws_lc_sys::X509_free(certificate);
            }
            aws_lc_sys::OPENSSL_sk_free(self.0);
        }
    }
}
