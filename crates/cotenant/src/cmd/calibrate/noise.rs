//! Whether other programs disturb a measurement.

use cotenant_cli::messages::tell;

/// What other programs may use of the CPUs before the whole calibration is called noisy: rounds that follow each
/// other within seconds do not show what changes over minutes.
const QUIET: f64 = 0.05;

/// Warns where other programs disturbed a measurement too much.
pub(super) fn remark(used_by_others: Option<f64>) {
    if let Some(share) = used_by_others.filter(|share| *share > QUIET) {
        tell(format_args!(
            "this machine is too noisy to be calibrated well: other programs used {:.0} % of its CPUs meanwhile; the next \
             calibration may say something else, also of what is not marked noisy",
            share * 100.0
        ));
    }
}
